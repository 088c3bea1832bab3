import { guideTest } from "../../support/stores/document-guide-test.ts";

guideTest({
  kind: "nats",
  name: "locks",
  replaced: (server) => [{ "localhost:4222": server }, { "localhost:4222": server }],
});

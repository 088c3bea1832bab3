import { guideTest } from "../../support/stores/document-guide-test.ts";

guideTest({
  kind: "dynamodb",
  name: "locks",
  replaced: (endpoint) => [
    { "region=eu-west-1": `region=eu-west-1&endpoint=${endpoint}` },
    { '"eu-west-1", maxAttempts': `"eu-west-1", endpoint: "${endpoint}", maxAttempts` },
  ],
});

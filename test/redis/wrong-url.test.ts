// A url of our own server that leads to a Redis: what is said of it.

import { expect, test } from "vitest";
import { place } from "../cli/command.ts";
import { withRedis } from "../support/redis-store.ts";

const here = place();

withRedis((server) => {
  test("holdfast:// at the port of a Redis says that no Holdfast server answers there, and what does", async () => {
    const url = server().url.replace(/^redis:/, "holdfast:");
    const { code, err, out } = await here.run(["run", "k", "--url", url, "--", "echo", "ran"]);
    expect({ code, out }).toEqual({ code: 69, out: "" });
    expect(err).toContain(
      "what answers there is not a Holdfast server, but seems to be Redis: its urls begin with redis://; nothing was run",
    );
  });
});

// A url of a Holdfast server that leads to a Redis, and the reverse: the messages.

import { expect, test } from "vitest";
import { serve } from "../../../src/server/server.ts";
import { freePort } from "../../../src/torture/processes/free-port.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";

const sandbox = cliSandbox();

test("redis:// at the port of a Holdfast server names the answering program, and exits with 69", async () => {
  const port = await freePort();
  const server = await serve({ listen: `holdfast://127.0.0.1:${port}`, state: "none" });
  try {
    const url = `redis://127.0.0.1:${port}`;
    const { code, err, out } = await sandbox.run(["run", "k", "--url", url, "--", "echo", "ran"]);
    expect({ code, out }).toEqual({ code: 69, out: "" });
    expect(err).toContain(
      "this is not a Redis server: check host and port; the URL of a Holdfast server begins with holdfast://; nothing was run",
    );
  } finally {
    await server.close();
  }
});

withRedis((server) => {
  test("holdfast:// at the port of a Redis reports that no Holdfast server answers there, and what does", async () => {
    const url = server().url.replace(/^redis:/, "holdfast:");
    const { code, err, out } = await sandbox.run(["run", "k", "--url", url, "--", "echo", "ran"]);
    expect({ code, out }).toEqual({ code: 69, out: "" });
    expect(err).toContain(
      "the peer is not a Holdfast server, but seems to be Redis: its urls begin with redis://; nothing was run",
    );
  });
});

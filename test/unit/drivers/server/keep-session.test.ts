import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import type { Socket } from "node:net";
import { createServer } from "node:net";
import { join } from "node:path";
import { expect, test } from "vitest";
import { lockServer } from "../../../../src/drivers/server/driver.ts";
import { openKeepSessionSocket } from "../../../../src/drivers/server/keep-session.ts";

test("a keep-session connection to a server that never answers is given up and closed", async () => {
  const folder = mkdtempSync("/tmp/hf-tether-");
  const path = join(folder, "socket");
  const silentServer = createServer().listen(path);
  const connection = once(silentServer, "connection") as Promise<[Socket]>;
  await expect(openKeepSessionSocket(lockServer({ path }))).rejects.toThrow(/did not answer within/);
  const [socket] = await connection;
  await once(socket.resume(), "close");
  silentServer.close();
  rmSync(folder, { recursive: true });
});

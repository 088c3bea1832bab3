// A route of Next.js that takes a lock, built for production and started. Long runs install Next.js: it takes minutes.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { until } from "../../src/testing/until.ts";
import { freePort } from "../../src/torture/processes/free-port.ts";
import { resolveInterop } from "../support/interop.ts";
import { createUserProject } from "../support/user-project.ts";

const LIBRARIES = ["next", "react", "react-dom"].map((name) => `test/interop/next/node_modules/${name}`);
const ROUTE = `
import { connect } from "holdfast";

export const dynamic = "force-dynamic";

export async function GET() {
  const locks = await connect("memory:");
  const text = await locks.using("bundled", async ({ keys }) => "held " + keys.join());
  await locks.close();
  return new Response(text);
}
`;

test.skipIf(process.env.HOLDFAST_LONG !== "1")("a route of Next.js", { timeout: 600_000 }, async () => {
  const project = createUserProject(LIBRARIES);
  onTestFinished(() => project[Symbol.dispose]());
  project.write({
    "package.json": '{"private":true}',
    "app/layout.js": "export default ({ children }) => <html><body>{children}</body></html>;",
    "app/page.js": "export default () => <p>page</p>;",
    "app/lock/route.js": ROUTE,
  });
  const program = join(resolveInterop("next/package.json", "next"), "../dist/bin/next");
  const env = { ...process.env, NEXT_TELEMETRY_DISABLED: "1" };
  const build = spawn(process.execPath, [program, "build", "--webpack"], {
    cwd: project.folder,
    env,
    stdio: "inherit",
  });
  expect(await once(build, "close")).toEqual([0, null]);
  const port = await freePort();
  const server = spawn(process.execPath, [program, "start", "-p", String(port), "-H", "127.0.0.1"], {
    cwd: project.folder,
    env,
    stdio: "inherit",
  });
  onTestFinished(async () => {
    const ended = once(server, "close");
    server.kill("SIGTERM");
    await ended;
  });
  const text = await until(
    async () => (await fetch(`http://127.0.0.1:${port}/lock`).catch(() => null))?.text() ?? null,
    { within: 60_000, what: "Next.js to answer" },
  );
  expect(text).toBe("held bundled");
});

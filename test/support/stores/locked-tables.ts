/** What the commands say while another session has Holdfast's table locked: each runs at the same time. */

import { expect } from "vitest";
import type { CliSandbox } from "../cli-sandbox.ts";

export async function expectLockedTableToBeNamed(sandbox: CliSandbox, url: string): Promise<void> {
  const env = { HOLDFAST_URL: url };
  const run = async (...args: string[]) => {
    const startedAt = performance.now();
    const { code, out, err } = await sandbox.run(args, { env });
    return { code, out, err, ms: performance.now() - startedAt };
  };
  const [doctor, list, show, wait] = await Promise.all([
    run("doctor"),
    run("ls"),
    run("show", "key"),
    run("run", "-w", "3", "key", "--", "true"),
  ]);
  expect(doctor).toMatchObject({ code: 69, out: expect.stringMatching(/^FAIL {2}\w+ +.* locked\b/m) });
  for (const { code, err } of [list, show]) {
    expect({ code, err }).toEqual({ code: 69, err: expect.stringMatching(/cannot be used: .*(?:no answer|lock)/) });
  }
  expect(wait).toMatchObject({
    code: 69,
    // MariaDB is not even open by then
    err: expect.stringMatching(/waited 3 s(?: for "key")?: .*(?:has not answered|did not answer).*; nothing was run/),
  });
  expect(wait.ms).toBeGreaterThan(3_000);
  // its start and end included, on a busy machine
  expect(wait.ms).toBeLessThan(7_000);
}

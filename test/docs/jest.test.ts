// Test locks under a real Jest. Its fake timers, as Vitest has them, are in test/unit/testing/fake-timers.test.ts.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { findJest } from "../support/interop.ts";

const jest = findJest();

test.skipIf(typeof jest === "string")(
  `test locks work under Jest${typeof jest === "string" ? ` (${jest})` : ""}`,
  { timeout: 60_000 },
  async () => {
    const { program, folder } = jest as Exclude<typeof jest, string>;
    const args = ["--experimental-vm-modules", program, "--ci", "--rootDir", folder];
    const { stderr } = await promisify(execFile)(process.execPath, args, { cwd: folder });
    expect(stderr).toMatch(/Tests: +2 passed, 2 total/);
  },
);

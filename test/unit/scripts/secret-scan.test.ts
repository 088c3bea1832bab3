import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { runSuite } from "../../../scripts/test/run-suite.ts";
import { createMark, markNodeOptions, scanFor } from "../../../scripts/test/secret-scan.ts";
import { randomId } from "../../../src/util/ids.ts";
import { builtFile } from "../../support/built-file.ts";
import { expectNoSecret, SECRET_MARK } from "../../support/secret-scan.ts";

test("the mark of a run is found in its output, complete or in pieces, plain or in base64 at any offset", () => {
  const mark = createMark();
  expect(mark).toMatch(/^[a-z2-7]{14}$/);
  const texts = ["", "a", "ab", "abc"].flatMap((before) => {
    const text = `${before}${mark}zzz`;
    return [text, Buffer.from(text).toString("base64url"), Buffer.from(text).toString("base64")];
  });
  for (const text of texts) {
    const scan = scanFor(mark);
    scan.push(`some ${text} more`);
    expect(scan.found, text).toBe(true);
    const inPieces = scanFor(mark);
    for (const char of `some ${text} more`) inPieces.push(char);
    expect(inPieces.found, text).toBe(true);
  }
  const other = scanFor(mark);
  // the space: a letter in front might by chance be the first one
  other.push(`${createMark()} `);
  other.push(mark.slice(1));
  expect(other.found).toBe(false);
});

test("a process of a marked run has the mark in its secrets, and ids stay different", () => {
  const mark = createMark();
  const program = builtFile("dist/cli/main.js");
  const env = { ...process.env, NODE_OPTIONS: markNodeOptions(mark, "") };
  const args = [program, "credential", "new", "--name", "a", "--prefix", "", "--json"];
  const outputs = [1, 2].map(
    () => JSON.parse(execFileSync(process.execPath, args, { env, encoding: "utf8" })) as object,
  );
  const credentials = outputs.map((output) => (output as { readonly credential: string }).credential);
  for (const credential of credentials) expect(credential.split(mark)).toHaveLength(3);
  expect(credentials[0]).not.toBe(credentials[1]);
});

test("in a marked run generated ids contain the mark, and a text with one is refused", () => {
  // as when this file is run alone
  if (SECRET_MARK === null) return expect(() => expectNoSecret(randomId(), "a text")).not.toThrow();
  expect(randomId()).toContain(SECRET_MARK);
  expect(() => expectNoSecret(`it is ${randomId()}`, "a text")).toThrow("a secret (the canary) stands in a text");
});

test.each([
  ["stdout", 1],
  ["stderr", 1],
  ["nowhere", 0],
])("a suite that prints a secret to %s has %i failures, although all its tests passed", async (target, faults) => {
  const source = "test/unit/scripts/prints-secret.child.ts";
  builtFile("build/test/unit/scripts/prints-secret.child.js");
  const suite = { name: "it", source, args: [target], longArgs: [] };
  const result = await runSuite(suite, false, createMark());
  expect(result.faults).toHaveLength(faults);
  expect(result.counts).toEqual({ passed: 1, failed: faults, skipped: 0 });
});

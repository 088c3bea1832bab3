import { execFileSync } from "node:child_process";
import { resolve } from "node:path";
import { expect, test } from "vitest";
import { newMark, nodeOptions, watchFor } from "../../scripts/test/canary.ts";
import { newId } from "../../src/ids.ts";
import { checkNoSecret, MARK } from "../support/canary.ts";

test("the mark of a run is found in what is printed, whole or in pieces, plain or in base64 at any place", () => {
  const mark = newMark();
  expect(mark).toMatch(/^[a-z2-7]{14}$/);
  const texts = ["", "a", "ab", "abc"].flatMap((before) => {
    const text = `${before}${mark}zzz`;
    return [text, Buffer.from(text).toString("base64url"), Buffer.from(text).toString("base64")];
  });
  for (const text of texts) {
    const whole = watchFor(mark);
    whole.push(`some ${text} more`);
    expect(whole.found, text).toBe(true);
    const inPieces = watchFor(mark);
    for (const char of `some ${text} more`) inPieces.push(char);
    expect(inPieces.found, text).toBe(true);
  }
  const other = watchFor(mark);
  other.push(newMark());
  other.push(mark.slice(1));
  expect(other.found).toBe(false);
});

test("a process of a marked run has the mark in its secrets, and ids stay different", () => {
  const mark = newMark();
  const program = resolve("dist/cli/main.js");
  const env = { ...process.env, NODE_OPTIONS: nodeOptions(mark, "") };
  const args = [program, "credential", "new", "--name", "a", "--prefix", "", "--json"];
  const made = [1, 2].map(() => JSON.parse(execFileSync(process.execPath, args, { env, encoding: "utf8" })) as object);
  const credentials = made.map((one) => (one as { readonly credential: string }).credential);
  for (const credential of credentials) expect(credential.split(mark)).toHaveLength(3);
  expect(credentials[0]).not.toBe(credentials[1]);
});

test("where the run has a mark our own ids have it, and a text with one is refused", () => {
  // as when this file is run alone
  if (MARK === null) return expect(() => checkNoSecret(newId(), "a text")).not.toThrow();
  expect(newId()).toContain(MARK);
  expect(() => checkNoSecret(`it is ${newId()}`, "a text")).toThrow("a secret (the canary) stands in a text");
});

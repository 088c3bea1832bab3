import { execFileSync } from "node:child_process";
import { describe, expect, test } from "vitest";
import { quoteWord, revokeCommand, showCommand } from "../../../src/dashboard/model/shell-quote.ts";

/** The arguments that a program gets from a POSIX shell for these words. */
function parseByShell(words: string): string[] {
  const script = `set -- ${words}\nfor argument; do printf '%s\\0' "$argument"; done`;
  return execFileSync("sh", ["-c", script], { encoding: "utf8" }).split("\0").slice(0, -1);
}

const TEXTS = [
  "invoice:4711",
  "",
  "two words",
  "it's",
  "''",
  '"$HOME" `id` $(id) \\n !x',
  "*?[a]~#;&|<>",
  "-rf",
  "--",
  "line\nline\n",
  "tab\there\u001b[31m\u0007",
  "\u007f\u009b\u202eevil\u2066",
  "emoji 🔒 عربي é",
  "%s %d \\101",
  "\u001b",
  "a\u0001'b\u0002",
];

describe("one word", () => {
  test.each(TEXTS)("%j reaches the program as it is", (text) => {
    expect(parseByShell(quoteWord(text))).toEqual([text]);
  });

  test("a plain word needs no quotes", () => {
    expect(quoteWord("invoice:4711")).toBe("invoice:4711");
  });

  test("nothing in it can act on a terminal or mislead a reader", () => {
    for (const text of TEXTS) expect(quoteWord(text)).not.toMatch(/[^\P{Cc}\n]|[\u202a-\u202e\u2066-\u2069]/u);
  });
});

describe("commands", () => {
  test("show one key", () => {
    expect(showCommand("a key")).toBe("holdfast show 'a key'");
  });

  test("a key that begins with a hyphen is no flag", () => {
    expect(showCommand("-k")).toBe("holdfast show -- -k");
    expect(parseByShell(showCommand("--now"))).toEqual(["holdfast", "show", "--", "--now"]);
  });

  test("revoke a lock, with its reason", () => {
    const command = revokeCommand({ key: "-k", token: "18", reason: "-stuck, it's dead", now: true });
    expect(parseByShell(command)).toEqual([
      "holdfast",
      "revoke",
      "--token",
      "18",
      "--now",
      "--reason=-stuck, it's dead",
      "--",
      "-k",
    ]);
  });

  test("without a reason there is no flag", () => {
    expect(revokeCommand({ key: "k", token: "18", reason: "", now: false })).toBe("holdfast revoke --token 18 k");
  });
});

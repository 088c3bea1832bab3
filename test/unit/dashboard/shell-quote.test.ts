import { execFileSync } from "node:child_process";
import { describe, expect, test } from "vitest";
import { findUrl, hintStore, quoteWord, revokeCommand, showCommand } from "../../../src/dashboard/model/shell-quote.ts";

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
    expect(showCommand("a key", null)).toBe("holdfast show 'a key'");
  });

  test("a key that begins with a hyphen is no flag", () => {
    expect(showCommand("-k", null)).toBe("holdfast show -- -k");
    expect(parseByShell(showCommand("--now", null))).toEqual(["holdfast", "show", "--", "--now"]);
  });

  test("revoke a lock, with its reason", () => {
    const command = revokeCommand({ url: null, key: "-k", token: "18", reason: "-stuck, it's dead", now: true });
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

  test("name the store by its url, if that is known", () => {
    expect(showCommand("k", "redis://127.0.0.1")).toBe("holdfast show --url 'redis://127.0.0.1' k");
    const url = "redis://h/0?a=it's&b=\u202e";
    const command = revokeCommand({ url, key: "k", token: "18", reason: "", now: false });
    expect(parseByShell(command)).toEqual(["holdfast", "revoke", "--url", url, "--token", "18", "k"]);
    expect([hintStore(url), hintStore(null)]).toEqual([null, "for the store of HOLDFAST_URL or HOLDFAST_DRIVER"]);
  });

  test("a name that is no url, or one without its password, is not passed", () => {
    expect(findUrl("holdfast+tls://locks:7420")).toBe("holdfast+tls://locks:7420");
    for (const store of ["redis://ana:***@h", "the lock server of this user", "", "-x:"]) {
      expect(findUrl(store)).toBeNull();
    }
  });

  test("without a reason there is no flag", () => {
    expect(revokeCommand({ url: null, key: "k", token: "18", reason: "", now: false })).toBe(
      "holdfast revoke --token 18 k",
    );
  });
});

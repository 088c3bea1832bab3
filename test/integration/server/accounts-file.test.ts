// The accounts file: all its errors are reported at once, and no report contains a credential.

import { chmodSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createAccessControl } from "../../../src/auth/access-control.ts";
import { createCredential, loadAccounts, parseAccounts } from "../../../src/auth/accounts-file.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import {
  cleanUpAfterEach,
  createTemporaryDirectory,
  expectHeld,
  makeClaim,
  openClient,
  startServer,
} from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

const { credential, hash } = createCredential();
const VALID_FILE = {
  version: 1,
  accounts: [
    {
      name: "billing",
      hashes: [hash],
      rules: [
        { prefix: "billing/", rights: ["acquire", "inspect"], maxHold: "10m" },
        { key: "deploy", rights: ["acquire"] },
      ],
    },
  ],
};

function writeAccountsFile(content: unknown, mode = 0o600): string {
  const path = join(createTemporaryDirectory(), "credentials.json");
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
  chmodSync(path, mode);
  return path;
}

function accountWith(change: object): object {
  return { version: 1, accounts: [{ ...VALID_FILE.accounts[0], ...change }] };
}

function ruleWith(change: object): object {
  return accountWith({ rules: [{ prefix: "a/", rights: ["acquire"], ...change }] });
}

test("a valid file defines accounts, and a client with one of their credentials is admitted", async () => {
  const accounts = loadAccounts(writeAccountsFile(VALID_FILE));
  expect(accounts).toEqual([
    {
      name: "billing",
      hashes: [hash],
      rules: [
        { prefix: "billing/", isExactKey: false, rights: ["acquire", "inspect"], maxHoldMs: 600_000 },
        { prefix: "deploy", isExactKey: true, rights: ["acquire"] },
      ],
    },
  ]);
  const principal = createAccessControl(accounts).authenticate(credential, "");
  expect(principal.maxHoldMs(["billing/1"])).toBe(600_000);
  expect(principal.maxHoldMs(["deploy"])).toBe(Number.POSITIVE_INFINITY);
});

test("accounts can be given in the environment: text that begins with a brace is read as the accounts themselves", () => {
  expect(loadAccounts(` ${JSON.stringify(VALID_FILE)}`)).toHaveLength(1);
  expect(() => loadAccounts('{"version":2}')).toThrow("credentials: version must be 1");
});

test("serve() reads an accounts file, and reload() reads it again", async () => {
  const path = writeAccountsFile(VALID_FILE);
  const it = await startServer({ access: { file: path } });
  const address = it.addresses[0] as string;
  const { driver } = await openClient(address, { credential });
  expectHeld(await driver.claim(makeClaim("billing/1")));
  const next = createCredential();
  await expect(openClient(address, { credential: next.credential })).rejects.toThrow("no valid credential");
  writeFileSync(path, JSON.stringify(accountWith({ hashes: [hash, next.hash] })));
  await it.reload();
  await openClient(address, { credential: next.credential });
  // an invalid file changes nothing
  writeFileSync(path, "{");
  await expect(it.reload()).rejects.toThrow("not valid JSON");
  expectHeld(await driver.claim(makeClaim("billing/2")));
});

test("all errors are reported at once, each with its position", () => {
  const invalidAccounts = {
    version: 2,
    acounts: [],
    accounts: [
      { name: "", hashes: [], rules: [] },
      {
        name: "a b",
        hashes: ["x", hash, hash],
        rules: [{ rights: ["acquire", "fly"] }, { prefix: "a", key: "b", rights: "all" }],
      },
      { name: "ok", hashes: [credential], rules: [{ prefix: "", rights: [], maxHold: "soon", right: 1 }] },
      { name: "ok", hashes: [hash], rules: [{ prefix: 5, rights: ["acquire"], maxHold: 0 }] },
      7,
    ],
  };
  const locations = [
    "version",
    "the file has an unknown field",
    "accounts[0].name",
    "accounts[0].hashes",
    "accounts[0].rules",
    "accounts[1].name",
    "accounts[1].hashes may",
    "accounts[1].hashes[0]",
    "accounts[1].hashes[2] occurs twice",
    "accounts[1].rules[0] must",
    "accounts[1].rules[0].rights[1]",
    "accounts[1].rules[1] must",
    "accounts[1].rules[1].prefix",
    "accounts[1].rules[1].rights",
    "accounts[2].hashes[0] is a credential itself",
    "accounts[2].rules[0] has an unknown field",
    "accounts[2].rules[0].rights",
    "accounts[2].rules[0].maxHold",
    "accounts[3].name is used by another",
    "accounts[3].hashes[0] occurs twice",
    "accounts[3].rules[0].prefix",
    "accounts[3].rules[0].maxHold",
    "accounts[4] must be an object",
  ];
  let message = "";
  try {
    parseAccounts(JSON.stringify(invalidAccounts), "/etc/x.json");
  } catch (error) {
    message = (error as Error).message;
  }
  const lines = message.split("\n");
  for (const location of locations)
    expect(
      lines.some((line) => line.startsWith(`/etc/x.json: ${location}`)),
      location,
    ).toBe(true);
  expect(message).not.toContain(credential);
});

test("a duplicate member is refused with its position instead of the last value being used; no credential is repeated", () => {
  const rights = '"rights":["inspect"],"rights":["acquire","revoke"]';
  const text = (rule: string): string =>
    `{"version":1,"accounts":[{"name":"a","hashes":["${hash}"],"rules":[{"prefix":"a/",${rule}}]}]}`;
  expect(parseAccounts(text('"rights":["inspect"]'), "x")).toHaveLength(1);
  expect(() => parseAccounts(text(rights), "x")).toThrow("x: accounts[0].rules[0].rights appears twice");
  expect(() => parseAccounts(text(`"${credential}":1,"${credential}":2`), "x")).toThrow(/^x: a member appears twice$/);
});

test.each([
  ["a word", ruleWith({ prefix: "team-a" }), "accounts[0].rules[0].prefix must end with a separator"],
  ["digits", ruleWith({ prefix: "team/1" }), "must end with a separator"],
  ["letters of other scripts", ruleWith({ prefix: "équipe" }), "must end with a separator"],
] as const)("a prefix that ends in %s would match longer names, and is refused", (_, content, message) => {
  expect(() => loadAccounts(writeAccountsFile(content))).toThrow(message);
  expect(loadAccounts(writeAccountsFile(ruleWith({ prefix: "team-" })))).toHaveLength(1);
  expect(loadAccounts(writeAccountsFile(ruleWith({ prefix: "" })))).toHaveLength(1);
});

test.each([0o604, 0o620, 0o644, 0o666, 0o602])(
  "a file of mode %o is refused: others could read or change it",
  (mode) => {
    expect(() => loadAccounts(writeAccountsFile(VALID_FILE, mode))).toThrow(`(mode ${mode.toString(8)})`);
  },
);

test.each([0o600, 0o400, 0o640, 0o440])(
  "a file of mode %o is accepted, since at most its group can read it",
  (mode) => {
    expect(loadAccounts(writeAccountsFile(VALID_FILE, mode))).toHaveLength(1);
  },
);

test("a symbolic link is followed, as mounted secrets need it; a missing file and invalid JSON are reported without the file's text", () => {
  const path = writeAccountsFile(VALID_FILE);
  const link = join(createTemporaryDirectory(), "link.json");
  symlinkSync(path, link);
  expect(loadAccounts(link)).toHaveLength(1);
  expect(() => loadAccounts("/nowhere/at/all.json")).toThrow("/nowhere/at/all.json cannot be read (ENOENT)");
  const broken = writeAccountsFile(`${credential} {`);
  expect(() => loadAccounts(broken)).toThrow("not valid JSON");
  expect(() => loadAccounts(broken)).not.toThrow(credential);
});

test("names and hashes of object prototypes match no account", () => {
  const text = '"accounts":[{"name":"a","hashes":["constructor"],"rules":[]}]}';
  expect(() => parseAccounts(`{"version":1,${text}`, "x")).toThrow("x: accounts[0].hashes[0] must be a SHA-256");
  expect(() => parseAccounts(`{"version":1,"__proto__":{"accounts":[]},${text}`, "x")).toThrow(
    "x: __proto__ must not be",
  );
  const access = createAccessControl([]);
  for (const property of ["__proto__", "constructor", "toString"]) {
    expect(() => access.authenticate(property, "")).toThrow("no valid credential");
  }
});

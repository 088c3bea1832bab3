// Accounts with their credentials, for tests.

import type { Access, Account, Right, Rule } from "../../src/server/access.ts";
import { createAccess } from "../../src/server/access.ts";
import { newCredential } from "../../src/server/credentials.ts";

export interface Known {
  readonly account: Account;
  readonly credential: string;
}

const ALL: readonly Right[] = ["acquire", "inspect", "force", "admin"];

/** An account with one credential that has these rights on keys that begin with the prefix. */
export function known(name: string, prefix = "", rights: readonly Right[] = ALL, more: Partial<Rule> = {}): Known {
  const { credential, hash } = newCredential();
  return { credential, account: { name, hashes: [hash], rules: [{ prefix, rights, ...more }] } };
}

export function accessFor(...all: readonly Known[]): Access {
  return createAccess(all.map(({ account }) => account));
}

// Accounts with their credentials, for tests.

import type { AccessControl, Account, Right, Rule } from "../../src/auth/access-control.ts";
import { createAccessControl } from "../../src/auth/access-control.ts";
import { createCredential } from "../../src/auth/accounts-file.ts";

export interface TestAccount {
  readonly account: Account;
  readonly credential: string;
}

const ALL_RIGHTS: readonly Right[] = ["acquire", "inspect", "revoke", "admin"];

/** An account with one credential that has these rights on keys that begin with the prefix. */
export function testAccount(
  name: string,
  prefix = "",
  rights: readonly Right[] = ALL_RIGHTS,
  ruleFields: Partial<Rule> = {},
): TestAccount {
  const { credential, hash } = createCredential();
  return { credential, account: { name, hashes: [hash], rules: [{ prefix, rights, ...ruleFields }] } };
}

export function createTestAccess(...accounts: readonly TestAccount[]): AccessControl {
  return createAccessControl(accounts.map(({ account }) => account));
}

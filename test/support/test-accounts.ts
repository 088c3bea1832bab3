// Accounts with their credentials, for tests.

import type { AccessControl, Account, Permission, Rule } from "../../src/server/auth/access-control.ts";
import { createAccessControl } from "../../src/server/auth/access-control.ts";
import { createCredential } from "../../src/server/auth/accounts-file.ts";

export interface TestAccount {
  readonly account: Account;
  readonly credential: string;
}

const ALL_RIGHTS: readonly Permission[] = ["acquire", "inspect", "force", "admin"];

/** An account with one credential that has these rights on keys that begin with the prefix. */
export function testAccount(
  name: string,
  prefix = "",
  permissions: readonly Permission[] = ALL_RIGHTS,
  ruleFields: Partial<Rule> = {},
): TestAccount {
  const { credential, hash } = createCredential();
  return { credential, account: { name, hashes: [hash], rules: [{ prefix, permissions, ...ruleFields }] } };
}

export function createTestAccess(...accounts: readonly TestAccount[]): AccessControl {
  return createAccessControl(accounts.map(({ account }) => account));
}

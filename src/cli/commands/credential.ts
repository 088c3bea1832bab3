/** `holdfast credential`: makes credentials and checks the file of accounts. */

import { createCredential, loadAccounts, parseAccounts } from "../../server/auth/accounts-file.ts";
import { CommandError } from "../errors.ts";
import { formatJsonLine, info, printLine } from "../output.ts";

export interface NewFlags {
  readonly name: string;
  readonly prefix: string;
  readonly rights: string;
  readonly maxHold?: string;
  readonly json?: true;
}

/** @throws CommandError if no file could have such an account */
export async function newCredentialCommand({ name, prefix, rights, maxHold, json }: NewFlags): Promise<number> {
  const { credential, hash } = createCredential();
  const rule = {
    prefix,
    rights: rights.split(",").map((right) => right.trim()),
    ...(maxHold !== undefined && { maxHold }),
  };
  const account = { name, hashes: [hash], rules: [rule] };
  try {
    parseAccounts(JSON.stringify({ version: 1, accounts: [account] }), "account");
  } catch (error) {
    throw new CommandError("usage", mapToFlags((error as Error).message), { cause: error });
  }
  if (json === true) printLine(formatJsonLine({ credential, account }));
  else {
    info("this credential is shown once; the server's file has only its hash");
    printLine(credential);
    printLine(JSON.stringify(account));
  }
  return 0;
}

/** What is wrong with an account, by the flags that said it. */
function mapToFlags(message: string): string {
  return message
    .replaceAll("account: accounts[0].", "")
    .replaceAll(/^name\b/gm, "--name")
    .replaceAll(/^rules\[0\]\.(prefix|rights)(\[\d+\])?/gm, "--$1")
    .replaceAll(/^rules\[0\]\.maxHold/gm, "--max-hold")
    .replaceAll(" or 600000 (milliseconds)", "");
}

/** @throws CommandError naming everything that is wrong */
export async function checkCredentialsCommand(file: string): Promise<number> {
  try {
    const accounts = loadAccounts(file);
    const hashes = accounts.reduce((sum, account) => sum + account.hashes.length, 0);
    printLine(`${file}: ${formatCount(accounts.length, "account")}, ${formatCount(hashes, "credential")}`);
    return 0;
  } catch (error) {
    throw new CommandError("usage", (error as Error).message, { cause: error });
  }
}

function formatCount(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

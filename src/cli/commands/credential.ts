/** `holdfast credential`: creates credentials and checks the file of accounts. */

import { createCredential, loadAccounts, parseAccounts } from "../../auth/accounts-file.ts";
import { addUnit } from "../duration-flag.ts";
import { CommandError } from "../errors.ts";
import { formatJsonLine, info, printLine } from "../output.ts";

export interface NewFlags {
  readonly name: string;
  readonly prefix: string;
  readonly rights: string;
  readonly maxHold?: string;
  readonly json?: true;
}

/** @throws CommandError if the account would be invalid in a file */
export async function newCredentialCommand({ name, prefix, rights, maxHold, json }: NewFlags): Promise<number> {
  const { credential, hash } = createCredential();
  const rule = {
    prefix,
    rights: rights.split(",").map((right) => right.trim()),
    ...(maxHold !== undefined && { maxHold: addUnit(maxHold) }),
  };
  const account = { name, hashes: [hash], rules: [rule] };
  try {
    parseAccounts(JSON.stringify({ version: 1, accounts: [account] }), "account");
  } catch (error) {
    throw new CommandError("usage", mapToFlags((error as Error).message), { cause: error });
  }
  if (json === true) printLine(formatJsonLine({ credential, account }));
  else {
    info("this credential is printed only once; the server's file contains only its hash");
    printLine(credential);
    printLine(JSON.stringify(account));
  }
  return 0;
}

/** Replaces the paths of fields in an error message by the flags that set them. */
function mapToFlags(message: string): string {
  return message
    .replaceAll("account: accounts[0].", "")
    .replaceAll(/^name\b/gm, "--name")
    .replaceAll(/^rules\[0\]\.(prefix|rights)(\[\d+\])?/gm, "--$1")
    .replaceAll(/^rules\[0\]\.maxHold/gm, "--max-hold")
    .replaceAll(" or 600000 (milliseconds)", "");
}

/** @throws CommandError with all errors of the file */
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

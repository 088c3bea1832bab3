/** `holdfast credential`: makes credentials and checks the file of accounts. */

import { accountsOf, newCredential, readAccounts } from "../server/credentials.ts";
import { CommandError } from "./failure.ts";
import { jsonLine, print, say } from "./output.ts";

export interface NewFlags {
  readonly name: string;
  readonly prefix: string;
  readonly rights: string;
  readonly maxHold?: string;
  readonly json?: true;
}

/** @throws CommandError if no file could have such an account */
export async function newCommand({ name, prefix, rights, maxHold, json }: NewFlags): Promise<number> {
  const { credential, hash } = newCredential();
  const rule = {
    prefix,
    rights: rights.split(",").map((right) => right.trim()),
    ...(maxHold !== undefined && { maxHold }),
  };
  const account = { name, hashes: [hash], rules: [rule] };
  try {
    accountsOf(JSON.stringify({ version: 1, accounts: [account] }), "account");
  } catch (error) {
    throw new CommandError("usage", flagsInWords((error as Error).message), { cause: error });
  }
  if (json === true) print(jsonLine({ credential, account }));
  else {
    say("this credential is shown once; the server's file has only its hash");
    print(credential);
    print(JSON.stringify(account));
  }
  return 0;
}

/** What is wrong with an account, by the flags that said it. */
function flagsInWords(message: string): string {
  return message
    .replaceAll("account: accounts[0].", "")
    .replaceAll(/^name\b/gm, "--name")
    .replaceAll(/^rules\[0\]\.(prefix|rights)(\[\d+\])?/gm, "--$1")
    .replaceAll(/^rules\[0\]\.maxHold/gm, "--max-hold")
    .replaceAll(" or 600000 (milliseconds)", "");
}

/** @throws CommandError naming everything that is wrong */
export async function checkCommand(file: string): Promise<number> {
  try {
    const accounts = readAccounts(file);
    const hashes = accounts.reduce((sum, account) => sum + account.hashes.length, 0);
    print(`${file}: ${counted(accounts.length, "account")}, ${counted(hashes, "credential")}`);
    return 0;
  } catch (error) {
    throw new CommandError("usage", (error as Error).message, { cause: error });
  }
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Flags and help of `holdfast credential`. */

import type { Command } from "commander";
import type { NewFlags } from "./commands/credential.ts";
import { addEpilog } from "./help-epilog.ts";

/** Adds the commands; `setResult` receives their work. */
export function addCredentialCommand(program: Command, setResult: (work: Promise<number>) => void): void {
  const command = program.command("credential").helpCommand(false).description("create credentials for a lock server");
  const loadCredential = (): Promise<typeof import("./commands/credential.ts")> => import("./commands/credential.ts");
  const newCommand = command
    .command("new")
    .description(
      "create a credential and print it once, with its account for the server's file, which contains only a hash",
    )
    .option("--name <account>", "name of the account", "unnamed")
    .option("--prefix <prefix>", 'allow keys that begin with this prefix, such as "team-a/"; "": all keys', "")
    .option("--rights <list>", "any of acquire, inspect, force, admin", "acquire,inspect")
    .option("--max-hold <duration>", "revoke locks on these keys after this time")
    .option("--json", "print one JSON object")
    .action((flags: NewFlags) =>
      setResult(loadCredential().then(({ newCredentialCommand }) => newCredentialCommand(flags))),
    );
  addEpilog(newCommand, EXAMPLES, NOTE);
  command
    .command("check")
    .description("check a file of accounts and print all its errors")
    .argument("<file>", "the file, as for holdfast serve --credentials")
    .action((file: string) =>
      setResult(loadCredential().then(({ checkCredentialsCommand }) => checkCredentialsCommand(file))),
    );
}

const EXAMPLES = [
  "holdfast credential new --name billing --prefix billing/",
  "holdfast credential new --name ops --rights inspect,force,admin",
];

const NOTE =
  'A client reads its credential from HOLDFAST_CREDENTIAL, or from the file in HOLDFAST_CREDENTIAL_FILE, never from a url or a flag. To replace a credential: create a new one, add its hash as the second of "hashes" of the account, send HUP to the server, give the clients the new credential, remove the first hash and send HUP again.';

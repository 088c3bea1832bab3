/** The flags and the help of `holdfast credential`. */

import type { Command } from "commander";
import type { NewFlags } from "./commands/credential.ts";
import { addEpilog } from "./help-epilog.ts";

/** Adds the commands; `setResult` is given their work. */
export function addCredentialCommand(program: Command, setResult: (work: Promise<number>) => void): void {
  const command = program.command("credential").helpCommand(false).description("make credentials for a lock server");
  const loadCredential = (): Promise<typeof import("./commands/credential.ts")> => import("./commands/credential.ts");
  const newCommand = command
    .command("new")
    .description(
      "make a credential: it is printed once, with the account for the server's file, which has only its hash",
    )
    .option("--name <account>", "whose it is", "unnamed")
    .option("--prefix <prefix>", 'keys that begin with it: "team-a/"; "" is every key', "")
    .option("--rights <list>", "of acquire, inspect, force, admin", "acquire,inspect")
    .option("--max-hold <duration>", "locks on these keys are taken back after this time")
    .option("--json", "as one JSON object")
    .action((flags: NewFlags) =>
      setResult(loadCredential().then(({ newCredentialCommand }) => newCredentialCommand(flags))),
    );
  addEpilog(newCommand, EXAMPLES, NOTE);
  command
    .command("check")
    .description("say everything that is wrong with a file of accounts")
    .argument("<file>", "as for holdfast serve --credentials")
    .action((file: string) =>
      setResult(loadCredential().then(({ checkCredentialsCommand }) => checkCredentialsCommand(file))),
    );
}

const EXAMPLES = [
  "holdfast credential new --name billing --prefix billing/",
  "holdfast credential new --name ops --rights inspect,force,admin",
];

const NOTE =
  'The client finds the credential in HOLDFAST_CREDENTIAL, or in the file that HOLDFAST_CREDENTIAL_FILE names; never in a url or a flag. To replace it: make another, put its hash second into "hashes" of the account, send the server HUP, give the clients the new one, take the first hash out, send HUP again.';

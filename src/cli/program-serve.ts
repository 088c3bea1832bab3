/** The flags and the help of `holdfast serve`. */

import type { Command } from "commander";
import { Option } from "commander";
import { SETTINGS } from "./commands/serve/settings.ts";
import { addEpilog } from "./help-epilog.ts";

/** Adds the command; `setResult` is given its work. */
export function addServeCommand(program: Command, setResult: (work: Promise<number>) => void): void {
  const command = program.command("serve").description("run a lock server");
  for (const { name, short, value, isRepeatable: repeatable, help } of SETTINGS) {
    const flags = `${short === undefined ? "" : `-${short}, `}--${name}${value === undefined ? "" : ` ${value}`}`;
    if (repeatable === undefined) command.option(flags, help);
    else command.option(flags, help, (value: string, values: string[] = []) => [...values, value]);
  }
  command
    .addOption(new Option("--on-demand").hideHelp())
    .action((flags: Readonly<Record<string, unknown>>) =>
      setResult(import("./commands/serve/serve.ts").then(({ serveCommand }) => serveCommand(flags))),
    );
  addEpilog(command, EXAMPLES, ...NOTES);
}

const EXAMPLES = [
  "holdfast serve --listen unix:/run/holdfast/socket --state /var/lib/holdfast",
  "holdfast serve --listen tcp://127.0.0.1:7420 --state ./locks",
  "holdfast serve --listen tls://0.0.0.0:7420 --tls-cert cert.pem \\\n--tls-key key.pem --credentials accounts.json --state /var/lib/holdfast",
  "holdfast serve --config /etc/holdfast.json --check",
];

const NOTES = [
  'All but --first-start, --config, --check, --json and --quiet may also stand in the environment (--tls-cert as HOLDFAST_TLS_CERT) or in the file of --config ({"tls-cert": "cert.pem"}); HOLDFAST_CONFIG names that file; a flag wins over the environment, and that over the file.',
  "TERM and INT stop the server: nothing more is granted, the clients are told, the state is saved; a second one ends it at once. HUP reads credentials and certificates again; no connection ends for it.",
  "Exit codes: 0 stopped, 64 usage, 69 an address, the state or the store cannot be had, or its socket or the lock of its state was removed, 70 stopping took more than 10 s, 74 its state could not be saved, 78 wrong configuration.",
];

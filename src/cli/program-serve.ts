/** Flags and help of `holdfast serve`. */

import type { Command } from "commander";
import { Option } from "commander";
import { SETTINGS } from "./commands/serve/settings.ts";
import { addEpilog } from "./help-epilog.ts";

/** Adds the command; `setResult` receives its work. */
export function addServeCommand(program: Command, setResult: (work: Promise<number>) => void): void {
  const command = program.command("serve").description("run a lock server");
  for (const { name, short, value, isRepeatable, help } of SETTINGS) {
    const flags = `${short === undefined ? "" : `-${short}, `}--${name}${value === undefined ? "" : ` ${value}`}`;
    if (isRepeatable === undefined) command.option(flags, help);
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
  'All flags except --first-start, --config, --check, --json and --quiet can also be set in the environment (--tls-cert as HOLDFAST_TLS_CERT) or in a JSON file ({"tls-cert": "cert.pem"}) that --config or HOLDFAST_CONFIG names. A flag overrides the environment, and the environment overrides the file.',
  "On TERM or INT the server grants no new locks, notifies its clients, saves its state and exits; a second signal ends it at once. On HUP it reloads credentials and certificates; connections stay open, unless their credential was removed.",
  "Exit codes: 0 stopped, 64 wrong usage, 69 an address, the state or the store is not available, or the socket or the lock of the state was removed, 70 stopping took more than 10 s, 74 the state could not be saved, 78 wrong configuration.",
];

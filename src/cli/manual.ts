/** `holdfast help all`: everything the commands say of themselves, as one text. */

import type { Command } from "commander";
import { print } from "./output.ts";

/** Prints the help of all commands, or of one. False: there is no such command. */
export function help(program: Command, names: readonly string[]): boolean {
  if (names.length === 1 && names[0] === "all") {
    print(manual(program));
    return true;
  }
  let command = program;
  for (const name of names) {
    const below = command.commands.find((one) => one.name() === name);
    if (below === undefined) return false;
    command = below;
  }
  command.outputHelp();
  return true;
}

const ENVIRONMENT = `Environment:
  HOLDFAST_URL              the store, where no --url is given
  HOLDFAST_CREDENTIAL       what the server knows us by; a secret
  HOLDFAST_CREDENTIAL_FILE  the file that it stands in, read again for each connection
  HOLDFAST_REFERENCE        the lock for renew, release and check; a secret
  HOLDFAST_DIR              the directory of the server on demand, instead of the one that depends on the user alone
  NO_COLOR                  no colours, also in a terminal

Urls:
  holdfast://host:7420            a server over TCP; a credential goes only to this machine in plain sight
  holdfasts://host:7420?ca=/path  a server over TLS; parameters: ca, cert, key, servername
  holdfast+unix:/path/to/socket   a server on a Unix socket
  memory:                         within one process; for tests

Exit codes:
  0 done     64 wrong usage     69 store not reached     70 a defect of ours     77 refused     78 wrong configuration
  121 would wait for its own ancestor     122 --max-hold passed     123 not held, or lost     124 not granted in time
  126, 127 the command of run cannot be executed, was not found     128+n ended by signal n`;

/** The texts of --help of every command that is not hidden, below headings. */
function manual(program: Command): string {
  const commands = [program, ...shown(program)];
  const parts = commands.map((command) => {
    let text = "";
    // outputHelp() writes, with what stands before and after; helpInformation() gives only the middle
    command.configureOutput({
      ...command.configureOutput(),
      writeOut: (part) => {
        text += part;
      },
    });
    command.outputHelp();
    return `${titleOf(command)}\n\n${text.trim()}`;
  });
  return [...parts, ENVIRONMENT].join("\n\n\n");
}

function shown(program: Command): Command[] {
  const below = program.createHelp().visibleCommands(program);
  return below.flatMap((command) => [command as Command, ...shown(command as Command)]);
}

function titleOf(command: Command): string {
  const names: string[] = [];
  for (let at: Command | null = command; at !== null; at = at.parent) names.unshift(at.name());
  return names.join(" ").toUpperCase();
}

/** Flags and help of the commands for operators: ls, show, watch, doctor, completion, help. */

import type { Command } from "commander";
import { CommandError } from "./errors.ts";
import { addEpilog } from "./help-epilog.ts";
import type { SetResult } from "./program-options.ts";
import { URL_HELP } from "./program-options.ts";

/** Adds the commands; `setResult` receives their work. */
export function addAdminCommands(program: Command, setResult: SetResult): void {
  const ls = addCommand(program, "ls", "list holders and waiters", "print one JSON object per line")
    .argument("[prefix]", "only keys that begin with this prefix")
    .action((prefix: string | undefined, flags: CommonFlags) =>
      setResult(import("./commands/list.ts").then(({ listCommand }) => listCommand(prefix, flags))),
    );
  addEpilog(ls, ["holdfast ls", "holdfast ls invoice: --json"]);
  const showCommand = addCommand(
    program,
    "show",
    "show one key: its holders, its queue, tokens and the last events",
    "print one JSON object",
  )
    .argument("<key>", "the key")
    .option("--events <n>", "number of last events to show, at most 100 (default: 10)")
    .action((key: string, flags: CommonFlags & { readonly events?: string }) =>
      setResult(import("./commands/show.ts").then(({ showCommand }) => showCommand(key, flags))),
    );
  addEpilog(showCommand, ["holdfast show deploy", "holdfast show deploy --events 50 --json"]);
  const watchCommand = addCommand(
    program,
    "watch",
    "print events as they happen, until interrupted",
    "print one JSON object per line",
  )
    .argument("[prefix]", "only keys that begin with this prefix")
    .option("-q, --quiet", "do not report lost and new connections to the server")
    .action((prefix: string | undefined, flags: CommonFlags & { readonly quiet?: boolean }) =>
      setResult(import("./commands/watch.ts").then(({ watchCommand }) => watchCommand(prefix, flags))),
    );
  addEpilog(watchCommand, ["holdfast watch", "holdfast watch invoice: --json | jq .event"]);
  const doctorCommand = addCommand(
    program,
    "doctor",
    "check the lock server: connection, versions, clocks, rights, latency",
    "print one JSON object",
  )
    .option("--key <prefix>", "check the rights on keys that begin with this prefix (default: all keys)")
    .option("--from <url>", "the store that you move from: check whether this store needs a tokenBase")
    .action((flags: CommonFlags & { readonly key?: string; readonly from?: string }) =>
      setResult(import("./commands/doctor/doctor.ts").then(({ doctorCommand }) => doctorCommand(flags))),
    );
  addEpilog(
    doctorCommand,
    [
      "holdfast doctor",
      "holdfast doctor --url holdfasts://locks:7420 --key team-a/",
      "holdfast doctor --url zookeeper://zk1:2181 --from redis://old:6379",
    ],
    "Exit codes: 0 the store can be used, 64 wrong usage, 69 not reached or granting no new locks, 77 refused.",
  );
  addHelpCommands(program, setResult);
}

interface CommonFlags {
  readonly url?: string;
  readonly json?: boolean;
}

function addCommand(program: Command, name: string, description: string, jsonDescription: string): Command {
  return program
    .command(name)
    .description(description)
    .option("--url <url>", URL_HELP)
    .option("--json", jsonDescription);
}

/** The commands about the commands. */
function addHelpCommands(program: Command, setResult: SetResult): void {
  const completionCommand = program
    .command("completion")
    .description("print a script that makes your shell complete commands and flags")
    .argument("<shell>", "bash, zsh or fish")
    .action((shell: string) =>
      setResult(import("./commands/completion.ts").then(({ completionCommand }) => completionCommand(shell, program))),
    );
  addEpilog(completionCommand, ['eval "$(holdfast completion bash)"', "holdfast completion fish | source"]);
  const helpCommand = program
    .command("help")
    .description("print the help of a command, or the manual")
    .argument("[command...]", "a command; `all`: all commands, environment variables, urls and exit codes")
    .option("--man", "print the manual as a page for man(1)")
    .action((names: string[], { man }: { readonly man?: boolean }) =>
      setResult(
        import("./commands/help.ts").then(({ printHelp, printManPage }) => {
          if (man === true) return printManPage(program);
          if (printHelp(program, names)) return 0;
          throw new CommandError("usage", `unknown command "${names.join(" ")}"; see holdfast --help`);
        }),
      ),
    );
  addEpilog(helpCommand, ["holdfast help run", "holdfast help all | less", "holdfast help --man | man -l -"]);
}

/** The flags and the help of the commands for operators: ls, show, watch, doctor, completion, help. */

import type { Command } from "commander";
import { CommandError } from "./errors.ts";
import { addEpilog } from "./help-epilog.ts";
import type { SetResult } from "./program-options.ts";
import { URL_HELP } from "./program-options.ts";

/** Adds the commands; `setResult` is given their work. */
export function addAdminCommands(program: Command, setResult: SetResult): void {
  const ls = addCommand(program, "ls", "list who holds and who waits", "one JSON object a line")
    .argument("[prefix]", "only keys that begin with it")
    .action((prefix: string | undefined, flags: CommonFlags) =>
      setResult(import("./commands/list.ts").then(({ listCommand }) => listCommand(prefix, flags))),
    );
  addEpilog(ls, ["holdfast ls", "holdfast ls invoice: --json"]);
  const showCommand = addCommand(
    program,
    "show",
    "show one key: holders, line, tokens, and what happened to it last",
    "one JSON object",
  )
    .argument("<key>", "the key")
    .option("--events <n>", "how many of its last events (default: 10, at most 100)")
    .action((key: string, flags: CommonFlags & { readonly events?: string }) =>
      setResult(import("./commands/show.ts").then(({ showCommand }) => showCommand(key, flags))),
    );
  addEpilog(showCommand, ["holdfast show deploy", "holdfast show deploy --events 50 --json"]);
  const watchCommand = addCommand(
    program,
    "watch",
    "tell what happens, as it happens, until it is interrupted",
    "one JSON object a line",
  )
    .argument("[prefix]", "only keys that begin with it")
    .option("-q, --quiet", "do not tell that the server went or came back")
    .action((prefix: string | undefined, flags: CommonFlags & { readonly quiet?: boolean }) =>
      setResult(import("./commands/watch.ts").then(({ watchCommand }) => watchCommand(prefix, flags))),
    );
  addEpilog(watchCommand, ["holdfast watch", "holdfast watch invoice: --json | jq .event"]);
  const doctorCommand = addCommand(
    program,
    "doctor",
    "examine the lock server: reachable, versions, clocks, rights, latency",
    "one JSON object",
  )
    .option("--key <prefix>", "what may be done with keys that begin with it (default: with every key)")
    .option("--from <url>", "the store that locks are moved from: says which tokenBase is needed here")
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
    "Exit codes: 0 usable, 69 not reached or not granting, 77 refused, 64 wrong usage.",
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

/** Commands that tell of the commands. */
function addHelpCommands(program: Command, setResult: SetResult): void {
  const completionCommand = program
    .command("completion")
    .description("print a script by which your shell completes commands and flags")
    .argument("<shell>", "bash, zsh or fish")
    .action((shell: string) =>
      setResult(import("./commands/completion.ts").then(({ completionCommand }) => completionCommand(shell, program))),
    );
  addEpilog(completionCommand, ['eval "$(holdfast completion bash)"', "holdfast completion fish | source"]);
  const helpCommand = program
    .command("help")
    .description("print the help of a command, or of all of them with environment, urls and exit codes")
    .argument("[command...]", "a command; all: everything there is to know")
    .option("--man", "all of it in the form that man(1) reads")
    .action((names: string[], { man }: { readonly man?: boolean }) =>
      setResult(
        import("./commands/help.ts").then(({ printHelp, printManPage }) => {
          if (man === true) return printManPage(program);
          if (printHelp(program, names)) return 0;
          throw new CommandError("usage", `there is no command "${names.join(" ")}"; see holdfast --help`);
        }),
      ),
    );
  addEpilog(helpCommand, ["holdfast help run", "holdfast help all | less", "holdfast help --man | man -l -"]);
}

/** The flags and the help of the commands for operators: ls, show, watch, doctor, completion, help. */

import type { Command } from "commander";
import { explain } from "./epilog.ts";
import { CommandError } from "./failure.ts";
import type { Take } from "./shared-options.ts";
import { URL_HELP } from "./shared-options.ts";

/** Adds the commands; `take` is given their work. */
export function addTools(program: Command, take: Take): void {
  const ls = add(program, "ls", "list who holds and who waits", "one JSON object a line")
    .argument("[prefix]", "only keys that begin with it")
    .action((prefix: string | undefined, flags: Flags) =>
      take(import("./ls.ts").then(({ list }) => list(prefix, flags))),
    );
  explain(ls, ["holdfast ls", "holdfast ls invoice: --json"]);
  const showing = add(
    program,
    "show",
    "show one key: holders, line, tokens, and what happened to it last",
    "one JSON object",
  )
    .argument("<key>", "the key")
    .option("--events <n>", "how many of its last events (default: 10, at most 100)")
    .action((key: string, flags: Flags & { readonly events?: string }) =>
      take(import("./show.ts").then(({ show }) => show(key, flags))),
    );
  explain(showing, ["holdfast show deploy", "holdfast show deploy --events 50 --json"]);
  const watching = add(
    program,
    "watch",
    "tell what happens, as it happens, until it is interrupted",
    "one JSON object a line",
  )
    .argument("[prefix]", "only keys that begin with it")
    .option("-q, --quiet", "do not tell that the server went or came back")
    .action((prefix: string | undefined, flags: Flags & { readonly quiet?: boolean }) =>
      take(import("./watch.ts").then(({ watch }) => watch(prefix, flags))),
    );
  explain(watching, ["holdfast watch", "holdfast watch invoice: --json | jq .event"]);
  const examining = add(
    program,
    "doctor",
    "examine the lock server: reachable, versions, clocks, rights, latency",
    "one JSON object",
  )
    .option("--key <prefix>", "what may be done with keys that begin with it (default: with every key)")
    .option("--from <url>", "the store that locks are moved from: says which tokenBase is needed here")
    .action((flags: Flags & { readonly key?: string; readonly from?: string }) =>
      take(import("./doctor.ts").then(({ doctor }) => doctor(flags))),
    );
  explain(
    examining,
    [
      "holdfast doctor",
      "holdfast doctor --url holdfasts://locks:7420 --key team-a/",
      "holdfast doctor --url zookeeper://zk1:2181 --from redis://old:6379",
    ],
    "Exit codes: 0 usable, 69 not reached or not granting, 77 refused, 64 wrong usage.",
  );
  addSelf(program, take);
}

interface Flags {
  readonly url?: string;
  readonly json?: boolean;
}

function add(program: Command, name: string, what: string, json: string): Command {
  return program.command(name).description(what).option("--url <url>", URL_HELP).option("--json", json);
}

/** Commands that tell of the commands. */
function addSelf(program: Command, take: Take): void {
  const completing = program
    .command("completion")
    .description("print a script by which your shell completes commands and flags")
    .argument("<shell>", "bash, zsh or fish")
    .action((shell: string) => take(import("./completion.ts").then(({ completion }) => completion(shell, program))));
  explain(completing, ['eval "$(holdfast completion bash)"', "holdfast completion fish | source"]);
  const helping = program
    .command("help")
    .description("print the help of a command, or of all of them with environment, urls and exit codes")
    .argument("[command...]", "a command; all: everything there is to know")
    .option("--man", "all of it in the form that man(1) reads")
    .action((names: string[], { man }: { readonly man?: boolean }) =>
      take(
        import("./manual.ts").then(({ help, manPage }) => {
          if (man === true) return manPage(program);
          if (help(program, names)) return 0;
          throw new CommandError("usage", `there is no command "${names.join(" ")}"; see holdfast --help`);
        }),
      ),
    );
  explain(helping, ["holdfast help run", "holdfast help all | less", "holdfast help --man | man -l -"]);
}

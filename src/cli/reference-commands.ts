/** The flags and the help of the commands that carry a lock from process to process: acquire, renew, release, check. */

import type { Command } from "commander";
import { explain } from "./epilog.ts";
import { CommandError } from "./failure.ts";
import type { ForceFlags } from "./force.ts";
import type { RunFlags } from "./run-options.ts";
import type { Take } from "./shared-options.ts";
import { common, waiting } from "./shared-options.ts";

/** Adds the commands; `take` is given their work. */
export function addReferences(program: Command, take: Take): void {
  const commands = (): Promise<typeof import("./references.ts")> => import("./references.ts");
  const acquire = waiting(
    program.command("acquire"),
    "length of the lease (default: 30s); extend it with `holdfast renew`",
  )
    .description("acquire a lock and print a reference (a secret) by which another process can renew and release it")
    .argument("<key...>", "what to lock; several are taken together")
    .action((keys: string[], flags: RunFlags) =>
      take(commands().then(({ acquireCommand }) => acquireCommand(keys, flags))),
    );
  explain(acquire, [
    "HOLDFAST_REFERENCE=$(holdfast acquire deploy --ttl 10m --wait 1m) || exit",
    "export HOLDFAST_REFERENCE",
    "./step-one.sh && holdfast renew && ./step-two.sh; holdfast release",
  ]);
  type Name = "renewCommand" | "releaseCommand" | "checkCommand";
  const add = (name: string, what: string, work: Name, ...lines: readonly string[]): Command =>
    explain(
      common(program.command(name)),
      lines,
      "Exit code 123 when the lock is not held by this reference (any more); the message gives the reason.",
    )
      .description(what)
      .argument("[reference]", "default: HOLDFAST_REFERENCE, else standard input, which keeps it out of process lists")
      .action((reference: string | undefined, flags: RunFlags & ForceFlags & { readonly force?: string }) =>
        take(
          flags.force === undefined
            ? commands().then((all) => all[work](reference, withoutForce(flags)))
            : import("./force.ts").then(({ forceRelease }) =>
                forceRelease(keyAlone(flags.force as string, reference), flags),
              ),
        ),
      );
  add("renew", "restart the lease of a reference", "renewCommand", "holdfast renew < reference.txt");
  add(
    "release",
    "give a lock back by its reference, or take it from its holder by force",
    "releaseCommand",
    "holdfast release < reference.txt",
    "holdfast release --force deploy --token 1800000001000000 --reason stuck",
  )
    .option("--force <key>", "instead of a reference: ask whoever holds this key to give it back")
    .option("--token <token>", "with --force: the token of the hold that is meant, as `holdfast show` tells it")
    .option("--now", "with --force: take it at once, although its holder may still be working")
    .option("--reason <text>", "with --force: why, for the server's log and events");
  add(
    "check",
    "say whether a reference's lock is still held; changes nothing",
    "checkCommand",
    "holdfast check && ./step-two.sh",
  );
}

/** A reference beside it would be ignored. @throws CommandError usage */
function keyAlone(key: string, reference: string | undefined): string {
  if (reference === undefined) return key;
  throw new CommandError("usage", "--force takes a key instead of a reference: leave one of them out");
}

/** What only --force knows would else be ignored, and a reference waited for. @throws CommandError usage */
function withoutForce<T extends ForceFlags>(flags: T): T {
  const { token, now, reason } = flags;
  const given = Object.entries({ token, now, reason }).find(([, value]) => value !== undefined);
  if (given === undefined) return flags;
  throw new CommandError("usage", `--${given[0]} needs --force KEY: it is for taking a lock from its holder`);
}

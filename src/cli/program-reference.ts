/** The flags and the help of the commands that carry a lock from process to process: acquire, renew, release, check. */

import type { Command } from "commander";
import type { ForceFlags } from "./commands/force-release.ts";
import type { RunFlags } from "./commands/run/options.ts";
import { CommandError } from "./errors.ts";
import { addEpilog } from "./help-epilog.ts";
import type { SetResult } from "./program-options.ts";
import { addCommonOptions, addWaitOptions } from "./program-options.ts";

/** Adds the commands; `setResult` is given their work. */
export function addReferenceCommands(program: Command, setResult: SetResult): void {
  const loadReference = (): Promise<typeof import("./commands/reference.ts")> => import("./commands/reference.ts");
  const acquire = addWaitOptions(
    program.command("acquire"),
    "length of the lease (default: 30s); extend it with `holdfast renew`",
  )
    .description("acquire a lock and print a reference (a secret) by which another process can renew and release it")
    .argument("<key...>", "what to lock; several are taken together")
    .action((keys: string[], flags: RunFlags) =>
      setResult(loadReference().then(({ acquireCommand }) => acquireCommand(keys, flags))),
    );
  addEpilog(acquire, [
    "HOLDFAST_REFERENCE=$(holdfast acquire deploy --ttl 10m --wait 1m) || exit",
    "export HOLDFAST_REFERENCE",
    "./step-one.sh && holdfast renew && ./step-two.sh; holdfast release",
  ]);
  type Name = "renewCommand" | "releaseCommand" | "checkCommand";
  const addCommand = (name: string, description: string, exportName: Name, ...lines: readonly string[]): Command =>
    addEpilog(
      addCommonOptions(program.command(name)),
      lines,
      "Exit code 123 when the lock is not held by this reference (any more); the message gives the reason.",
    )
      .description(description)
      .argument("[reference]", "default: HOLDFAST_REFERENCE, else standard input, which keeps it out of process lists")
      .action((reference: string | undefined, flags: RunFlags & ForceFlags & { readonly force?: string }) =>
        setResult(
          flags.force === undefined
            ? loadReference().then((module) => module[exportName](reference, rejectForceFlags(flags)))
            : import("./commands/force-release.ts").then(({ forceRelease }) =>
                forceRelease(rejectReference(flags.force as string, reference), flags),
              ),
        ),
      );
  addCommand("renew", "restart the lease of a reference", "renewCommand", "holdfast renew < reference.txt");
  addCommand(
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
  addCommand(
    "check",
    "say whether a reference's lock is still held; changes nothing",
    "checkCommand",
    "holdfast check && ./step-two.sh",
  );
}

/** A reference beside it would be ignored. @throws CommandError usage */
function rejectReference(key: string, reference: string | undefined): string {
  if (reference === undefined) return key;
  throw new CommandError("usage", "--force takes a key instead of a reference: leave one of them out");
}

/** What only --force knows would else be ignored, and a reference waited for. @throws CommandError usage */
function rejectForceFlags<T extends ForceFlags>(flags: T): T {
  const { token, now, reason } = flags;
  const flag = Object.entries({ token, now, reason }).find(([, value]) => value !== undefined);
  if (flag === undefined) return flags;
  throw new CommandError("usage", `--${flag[0]} needs --force KEY: it is for taking a lock from its holder`);
}

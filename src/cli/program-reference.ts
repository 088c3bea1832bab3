/** Flags and help of the commands that pass a lock from process to process: acquire, renew, release, check. */

import type { Command } from "commander";
import type { ForceFlags } from "./commands/force-release.ts";
import type { RunFlags } from "./commands/run/options.ts";
import { CommandError } from "./errors.ts";
import { addEpilog } from "./help-epilog.ts";
import type { SetResult } from "./program-options.ts";
import { addCommonOptions, addWaitOptions } from "./program-options.ts";

/** Adds the commands; `setResult` receives their work. */
export function addReferenceCommands(program: Command, setResult: SetResult): void {
  const loadReference = (): Promise<typeof import("./commands/reference.ts")> => import("./commands/reference.ts");
  const acquire = addWaitOptions(
    program.command("acquire"),
    "length of the lease (default: 30s); extend it with `holdfast renew`",
  )
    .description("acquire a lock and print a reference (a secret), with which any process can renew and release it")
    .argument("<key...>", "the key to lock; several keys are locked together")
    .action((keys: string[], flags: RunFlags) =>
      setResult(loadReference().then(({ acquireCommand }) => acquireCommand(keys, flags))),
    );
  addEpilog(acquire, [
    "HOLDFAST_REFERENCE=$(holdfast acquire deploy --ttl 10m --wait 1m) || exit",
    "export HOLDFAST_REFERENCE",
    "./step-one.sh && holdfast renew && ./step-two.sh; holdfast release",
  ]);
  type Name = "renewCommand" | "releaseCommand" | "checkCommand";
  const addCommand = (name: string, description: string, exportName: Name, ...examples: readonly string[]): Command =>
    addEpilog(
      addCommonOptions(program.command(name)),
      examples,
      "The exit code is 123 if this reference does not hold the lock (any more). The message gives the reason.",
    )
      .description(description)
      .argument(
        "[reference]",
        "the reference (default: HOLDFAST_REFERENCE, else standard input, which process lists do not show)",
      )
      .action((reference: string | undefined, flags: RunFlags & ForceFlags & { readonly force?: string }) =>
        setResult(
          flags.force === undefined
            ? loadReference().then((module) => module[exportName](reference, rejectForceFlags(flags)))
            : import("./commands/force-release.ts").then(({ forceRelease }) =>
                forceRelease(rejectReference(flags.force as string, reference), flags),
              ),
        ),
      );
  addCommand("renew", "renew the lease of a lock by its reference", "renewCommand", "holdfast renew < reference.txt");
  addCommand(
    "release",
    "release a lock by its reference, or take it from its holder with --force",
    "releaseCommand",
    "holdfast release < reference.txt",
    "holdfast release --force deploy --token 1800000001000000 --reason stuck",
  )
    .option("--force <key>", "instead of a reference: revoke the lock on this key; its holder is told to release it")
    .option("--token <token>", "with --force: the holder's token, as `holdfast show` prints it")
    .option("--now", "with --force: free the lock at once, although its holder may still be working")
    .option("--reason <text>", "with --force: the reason, for the server's log and events");
  addCommand(
    "check",
    "check whether a reference still holds its lock; changes nothing",
    "checkCommand",
    "holdfast check && ./step-two.sh",
  );
}

/** Rejects a reference beside --force, which would ignore it. @throws CommandError usage */
function rejectReference(key: string, reference: string | undefined): string {
  if (reference === undefined) return key;
  throw new CommandError("usage", "--force takes a key instead of a reference: give only one of them");
}

/** Rejects flags that need --force: without this they are ignored, and the command waits for a reference on stdin. @throws CommandError usage */
function rejectForceFlags<T extends ForceFlags>(flags: T): T {
  const { token, now, reason } = flags;
  const flag = Object.entries({ token, now, reason }).find(([, value]) => value !== undefined);
  if (flag === undefined) return flags;
  throw new CommandError("usage", `--${flag[0]} needs --force KEY: it applies only to taking a lock from its holder`);
}

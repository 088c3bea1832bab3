/** The commands, their flags and their help. What a command does is loaded when it is called. */

import { isUtf8 } from "node:buffer";
import { readFileSync } from "node:fs";
import type { CommanderError } from "commander";
import { Command } from "commander";
import type { RunFlags } from "./commands/run/options.ts";
import { CommandError, describeUsageError, EXIT_CODES } from "./errors.ts";
import { addEpilog, helpWidth } from "./help-epilog.ts";
import { printLine, writeStderr } from "./output.ts";
import { addAdminCommands } from "./program-admin.ts";
import { addCredentialCommand } from "./program-credential.ts";
import type { SetResult } from "./program-options.ts";
import { addWaitOptions } from "./program-options.ts";
import { addReferenceCommands } from "./program-reference.ts";
import { addServeCommand } from "./program-serve.ts";

/**
 * Does what the arguments say and gives the exit code.
 * @throws CommandError, InterruptedError
 */
export async function runProgram(argv: readonly string[]): Promise<number> {
  checkArguments(argv);
  // what stands behind "--" is the command's alone: no flag of it is ours
  const separator = argv[0] === "run" ? argv.indexOf("--") : -1;
  const ownArguments = replaceAlias(separator === -1 ? argv : argv.slice(0, separator));
  const command = separator === -1 ? [] : argv.slice(separator + 1);
  let exitCode: Promise<number> = Promise.resolve(0);
  const program = createProgram(ownArguments[0], command, (work) => {
    exitCode = work;
  });
  if (ownArguments.length === 0) {
    program.outputHelp({ error: true });
    return EXIT_CODES.usage;
  }
  try {
    await program.parseAsync(ownArguments, { from: "user" });
  } catch (error) {
    const { code, exitCode: requestedExitCode, message } = error as CommanderError;
    if (typeof code !== "string" || !code.startsWith("commander.")) throw error;
    if (requestedExitCode === 0) return 0;
    // a command that only has commands below it was told none: its help stands on stderr
    if (code === "commander.help") return EXIT_CODES.usage;
    throw new CommandError("usage", describeUsageError(message, ownArguments[0]), { cause: error });
  }
  return exitCode;
}

/** `holdfast version` is what many programs understand; it is no command that help lists. */
function replaceAlias(ownArguments: readonly string[]): readonly string[] {
  return ownArguments.length === 1 && ownArguments[0] === "version" ? ["--version"] : ownArguments;
}

/**
 * Node reads bytes that are no UTF-8 as U+FFFD: the command would get another argument than it was given, and two keys
 * would be one. @throws CommandError usage
 */
function checkArguments(argv: readonly string[]): void {
  const index = argv.findIndex((text) => text.includes("\ufffd"));
  if (index === -1 || process.platform !== "linux" || isUtf8(readFileSync("/proc/self/cmdline"))) return;
  throw new CommandError(
    "usage",
    `argument ${index + 1} is not UTF-8 and would be altered on its way; nothing was run`,
  );
}

function createProgram(commandName: string | undefined, command: readonly string[], setResult: SetResult): Command {
  const program = new Command("holdfast")
    .description("Locks for programs: exclusive, fair, fenced, and gone when their holder is.")
    // the manifest is read only when it is asked for
    .version(
      ["-V", "--version"].includes(commandName ?? "") ? readPackageVersion() : "",
      "-V, --version",
      "print the version",
    )
    .helpOption("-h, --help", "print this help")
    .helpCommand(false)
    .exitOverride()
    .configureOutput({
      writeOut: (text) => printLine(text.trimEnd()),
      writeErr: (text) => writeStderr(text.trimEnd()),
      outputError: () => undefined,
      getOutHelpWidth: () => helpWidth(process.stdout),
      getErrHelpWidth: () => helpWidth(process.stderr),
    });
  addRunCommand(program, command, setResult);
  if (commandName === "run") return program; // in haste: nobody will read of the others
  addReferenceCommands(program, setResult);
  addAdminCommands(program, setResult);
  addServeCommand(program, setResult);
  addCredentialCommand(program, setResult);
  return addEpilog(
    program,
    ["holdfast run nightly-report -- ./report.sh", "holdfast ls"],
    "Without --url and HOLDFAST_URL all commands share one lock server of yours on this machine, started on demand.",
  );
}

function addRunCommand(program: Command, command: readonly string[], setResult: SetResult): void {
  const run = addWaitOptions(program.command("run"), "length of the lease, renewed while the command runs")
    .description("run a command while holding a lock; it never works without the lock")
    .usage("KEY... [options] -- COMMAND [ARGUMENT...]")
    .argument("<key...>", "what to lock; several are taken together")
    .option("--on-lost <what>", "when the lock is being lost: term (then kill), kill, or ignore", "term")
    .option("--grace <duration>", "from TERM to KILL, at most half of the lease (default: 5s, less for short leases)")
    .option("--max-hold <duration>", "end the command after this time")
    .option("--hold-at-least <duration>", "keep the lock so long, also when the command ends sooner: once per tick")
    .action((keys: string[], flags: RunFlags) => {
      setResult(
        Promise.all([import("./commands/run/run.ts"), import("./commands/run/options.ts")]).then(
          ([{ runCommand }, { parseRunOptions }]) => runCommand(parseRunOptions(keys, flags, command)),
        ),
      );
    });
  addEpilog(
    run,
    [
      "holdfast run nightly-report -- ./report.sh --full",
      "holdfast run db media --wait 10m -- ./backup.sh",
      "holdfast run gpu --permits 1/4 -- python train.py",
      "holdfast run config --shared -- ./read-config.sh",
      "holdfast run deploy -n -E 0 -- ./deploy.sh",
      "holdfast run tick -n -E 0 --hold-at-least 55s -- ./every-minute.sh",
    ],
    "The command finds HOLDFAST_KEY, HOLDFAST_TOKEN (rises with every holder; HOLDFAST_TOKENS: of each key) and HOLDFAST_REFERENCE (a secret).",
    "Exit codes: the command's own, 128+n when signal n ended it; 124 not granted in time, 123 lock lost, 122 --max-hold passed, 121 would wait for its own ancestor, 69 store unreachable or granting nothing new, 77 refused, 64 usage, 74 what it holds cannot be written, 70 a defect, 126 and 127 command not executable, not found.",
  );
}

function readPackageVersion(): string {
  const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
    version: string;
  };
  return manifest.version;
}

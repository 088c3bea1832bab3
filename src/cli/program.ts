/** The commands, their flags and their help. The code of a command is loaded when the command is called. */

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
 * Runs the command of these arguments, and gives the exit code.
 * @throws CommandError, InterruptedError
 */
export async function runProgram(argv: readonly string[]): Promise<number> {
  checkArguments(argv);
  // everything after "--" belongs to the command: commander must not parse its flags
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
    // a command with subcommands was called without one: commander has printed its help on stderr
    if (code === "commander.help") return EXIT_CODES.usage;
    throw new CommandError("usage", describeUsageError(message, ownArguments[0]), { cause: error });
  }
  return exitCode;
}

/** Many programs have a `version` command, so `holdfast version` works, too; help does not list it. */
function replaceAlias(ownArguments: readonly string[]): readonly string[] {
  return ownArguments.length === 1 && ownArguments[0] === "version" ? ["--version"] : ownArguments;
}

/**
 * Rejects arguments that are not UTF-8. Node replaces such bytes by U+FFFD, so the command would receive a different
 * argument, and two different keys would become the same. @throws CommandError usage
 */
function checkArguments(argv: readonly string[]): void {
  const index = argv.findIndex((text) => text.includes("\ufffd"));
  if (index === -1 || process.platform !== "linux" || isUtf8(readFileSync("/proc/self/cmdline"))) return;
  throw new CommandError(
    "usage",
    `argument ${index + 1} is not UTF-8 and would reach the command altered; nothing was run`,
  );
}

function createProgram(commandName: string | undefined, command: readonly string[], setResult: SetResult): Command {
  const program = new Command("holdfast")
    .description("Distributed locks for programs: exclusive, fair, fenced, and released when their holder dies.")
    // package.json is read only for --version: it would slow down every start
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
  if (commandName === "run") return program; // starts sooner: `run` needs no other command
  addReferenceCommands(program, setResult);
  addAdminCommands(program, setResult);
  addServeCommand(program, setResult);
  addCredentialCommand(program, setResult);
  return addEpilog(
    program,
    ["holdfast run nightly-report -- ./report.sh", "holdfast ls"],
    "Without --url and HOLDFAST_URL, all commands use your own lock server on this machine. It is started on demand.",
  );
}

function addRunCommand(program: Command, command: readonly string[], setResult: SetResult): void {
  const run = addWaitOptions(program.command("run"), "length of the lease, renewed while the command runs")
    .description("run a command under a lock; if the lock is lost, the command is ended")
    .usage("KEY... [options] -- COMMAND [ARGUMENT...]")
    .argument("<key...>", "the key to lock; several keys are locked together")
    .option("--on-lost <action>", "when the lock is being lost: term (then kill), kill or ignore", "term")
    .option(
      "--grace <duration>",
      "time from TERM to KILL, at most half of the lease (default: 5s, less for short leases)",
    )
    .option("--max-hold <duration>", "end the command after this time")
    .option("--hold-at-least <duration>", "keep the lock for this long, even if the command ends sooner")
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
    "The environment of the command contains HOLDFAST_KEY, HOLDFAST_TOKEN (the fencing token, which rises with every holder), HOLDFAST_TOKENS (the token of each key) and HOLDFAST_REFERENCE (a secret).",
    "Exit codes: the command's own, or 128+n if signal n ended it; 64 wrong usage, 69 store unreachable or granting no new locks, 70 internal error, 74 the record of what the run holds cannot be written, 77 refused, 121 deadlock with an outer run, 122 --max-hold passed, 123 lock lost, 124 not granted in time, 126 command not executable, 127 command not found.",
  );
}

function readPackageVersion(): string {
  const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
    version: string;
  };
  return manifest.version;
}

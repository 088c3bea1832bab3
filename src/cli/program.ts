/** The commands, their flags and their help. The code of a command is loaded when the command is called. */

import { isUtf8 } from "node:buffer";
import { readFileSync } from "node:fs";
import type { CommanderError } from "commander";
import { Argument, Command, Help, Option } from "commander";
import { PACKAGE_VERSION } from "../protocol/handshake.ts";
import type { AcquireFlags } from "./acquire-flags.ts";
import type { Shell } from "./commands/completion.ts";
import type { NewFlags } from "./commands/credential.ts";
import type { DoctorFlags } from "./commands/doctor/doctor.ts";
import { createDashboardOptions, createGatewayOptions } from "./commands/gateway/settings.ts";
import type { ListFlags } from "./commands/list.ts";
import type { ReferenceFlags } from "./commands/reference.ts";
import type { RevokeFlags } from "./commands/revoke.ts";
import type { RunFlags } from "./commands/run/options.ts";
import { createServeOptions } from "./commands/serve/settings.ts";
import type { ShowFlags } from "./commands/show.ts";
import type { TopFlags } from "./commands/top/top.ts";
import type { TortureFlags } from "./commands/torture/options.ts";
import type { WatchFlags } from "./commands/watch.ts";
import { CommandError, describeUsageError, EXIT_CODES } from "./errors.ts";
import { addEpilog, helpWidth } from "./help.ts";
import { printLine, writeStderr } from "./output.ts";

/** The parser of the command line, and the exit code of the command that it has called. */
interface Program {
  readonly root: Command;
  exitCode: number;
}

/**
 * Runs the command of these arguments, and gives the exit code.
 * @throws CommandError, InterruptedError
 */
export async function runProgram(argv: readonly string[]): Promise<number> {
  checkArguments(argv);
  // everything after "--" belongs to the command: commander must not parse its flags
  const separator = argv[0] === "run" ? argv.indexOf("--") : -1;
  const ownArguments = separator === -1 ? argv : argv.slice(0, separator);
  const command = separator === -1 ? [] : argv.slice(separator + 1);
  const program = createProgram(ownArguments[0], command);
  if (ownArguments.length === 0) {
    program.root.outputHelp({ error: true });
    return EXIT_CODES.usage;
  }
  try {
    await program.root.parseAsync(ownArguments, { from: "user" });
  } catch (error) {
    const { code, exitCode, message } = error as CommanderError;
    if (typeof code !== "string" || !code.startsWith("commander.")) throw error;
    if (exitCode === 0) return 0;
    // a command with subcommands was called without one: commander has printed its help on stderr
    if (code === "commander.help") return EXIT_CODES.usage;
    throw new CommandError("usage", describeUsageError(message, ownArguments[0]), { cause: error });
  }
  return program.exitCode;
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

function createProgram(commandName: string | undefined, command: readonly string[]): Program {
  const root = new Command("holdfast")
    .description("Distributed locks for programs: exclusive, fair, fenced, and released when their holder dies.")
    .version(PACKAGE_VERSION, "-V, --version", "print the version")
    .helpOption("-h, --help", "print this help")
    .helpCommand("help [command]", "print the help of a command")
    .configureHelp({ optionDescription: describeOption })
    .exitOverride()
    .configureOutput({
      writeOut: (text) => printLine(text.trimEnd()),
      writeErr: (text) => writeStderr(text.trimEnd()),
      outputError: () => undefined,
      getOutHelpWidth: () => helpWidth(process.stdout),
      getErrHelpWidth: () => helpWidth(process.stderr),
    });
  const program: Program = { root, exitCode: 0 };
  addRun(program, command);
  if (commandName === "run") return program; // starts sooner: `run` needs no other command
  addAcquire(program);
  addReferenceCommands(program);
  addRevoke(program);
  addViews(program);
  addDoctor(program);
  addCompletion(program);
  addServe(program);
  addGateway(program);
  addDashboard(program);
  addCredential(program);
  addTorture(program);
  addEpilog(root, {
    examples: ["holdfast run nightly-report -- ./report.sh", "holdfast ls"],
    notes: [
      "Without --url, --driver, HOLDFAST_URL and HOLDFAST_DRIVER, all commands use your own lock server on this machine. It is started on demand.",
      "Durations are written as 500ms, 30s, 1m30s, 2h or 1d; a bare number is seconds.",
    ],
  });
  return program;
}

/** Without the variable of a flag: the notes of `serve` name all of them. */
function describeOption(option: Option): string {
  return new Help().optionDescription(Object.create(option, { envVar: { value: undefined } }) as Option);
}

/**
 * Sets what a command does. The action gets the arguments and flags, loads the command's code and returns its exit
 * code.
 */
function setAction(program: Program, command: Command, action: (...args: never[]) => Promise<number>): Command {
  return command.action(async (...args: unknown[]) => {
    program.exitCode = await action(...(args as never[]));
  });
}

/** Adds the flags that name the store. */
function addStoreOptions(command: Command): Command {
  return command
    .option("--url <url>", "the store (default: HOLDFAST_URL, or your own lock server)")
    .option("--driver <module>", "a module with a driver or a store of your own, instead of --url (HOLDFAST_DRIVER)");
}

/**
 * Adds the flags of commands that wait for a lock. `ttl` is the help of --ttl. The short flags are those of flock(1).
 */
function addWaitOptions(command: Command, ttl: string): Command {
  const noWait = new Option("-n, --no-wait", "fail at once if the lock is not free");
  // without this, commander reads it as `wait: false`, and the last of --wait and --no-wait silently wins
  noWait.negate = false;
  return addLockOptions(command)
    .option("-s, --shared", "share the lock with other --shared holders")
    .option("--permits <n/m>", "take n of the m permits of the key")
    .option("-w, --wait <duration>", "the longest wait (default: no limit)")
    .addOption(noWait)
    .option("--ttl <duration>", ttl)
    .option("--label <text>", "public description of this holder (default: user@host pid 4121 (program))")
    .option("-E, --conflict-exit-code <code>", "exit code if the lock is not granted in time (default: 124)")
    .option("-v, --verbose", "print more on stderr");
}

/** Adds the flags of commands that work on a lock. */
function addLockOptions(command: Command): Command {
  return addStoreOptions(command)
    .option("--json", "print results and causes of failure as JSON")
    .option("-q, --quiet", "print nothing on stderr");
}

/** Adds the flags of commands that print the state of a store. */
function addViewOptions(command: Command, jsonHelp: string): Command {
  return addStoreOptions(command).option("--json", jsonHelp);
}

function addRun(program: Program, commandWords: readonly string[]): void {
  const run = addWaitOptions(program.root.command("run"), "length of the lease, renewed while the command runs")
    .description("run a command under a lock; if the lock is lost, the command is ended")
    .usage("KEY... [options] -- COMMAND [ARGUMENT...]")
    .argument("<key...>", "the key to lock; several keys are locked together")
    .option("--on-lost <action>", "when the lock is being lost: term (then kill), kill or ignore", "term")
    .option(
      "--grace <duration>",
      "time from TERM to KILL, at most half of the lease (default: 5s, less for short leases)",
    )
    .option("--max-hold <duration>", "end the command after this time")
    .option("--hold-at-least <duration>", "keep the lock for this long, even if the command ends sooner");
  setAction(program, run, async (keys: string[], flags: RunFlags) => {
    const [{ runCommand }, { parseRunOptions }] = await Promise.all([
      import("./commands/run/run.ts"),
      import("./commands/run/options.ts"),
    ]);
    return runCommand(parseRunOptions(keys, flags, commandWords));
  });
  addEpilog(run, {
    examples: [
      "holdfast run nightly-report -- ./report.sh --full",
      "holdfast run db media --wait 10m -- ./backup.sh",
      "holdfast run gpu --permits 1/4 -- python train.py",
      "holdfast run config --shared -- ./read-config.sh",
      "holdfast run deploy -n -E 0 -- ./deploy.sh",
      "holdfast run tick -n -E 0 --hold-at-least 55s -- ./every-minute.sh",
    ],
    notes: [
      "The end of a run: the lock is released when the command ends, with --hold-at-least not before that time has passed. If the lease (--ttl) cannot be renewed, the command gets TERM one --grace before the lease ends, and KILL at its end; --on-lost changes that. --max-hold ends the command in the same way after that time.",
      "The environment of the command contains HOLDFAST_KEY, HOLDFAST_TOKEN (the fencing token, which rises with every holder), HOLDFAST_TOKENS (the token of each key) and HOLDFAST_REFERENCE (a secret).",
      "Exit codes: the command's own, or 128+n if signal n ended it; 64 wrong usage, 69 store unreachable or granting no new locks, 70 internal error, 74 the record of what the run holds cannot be written, 77 refused, 121 deadlock with an outer run, 122 --max-hold passed, 123 lock lost, 124 not granted in time, 126 command not executable, 127 command not found.",
    ],
  });
}

function addAcquire(program: Program): void {
  const acquire = addWaitOptions(
    program.root.command("acquire"),
    "length of the lease (default: 30s); extend it with `holdfast renew`",
  )
    .description("acquire a lock and print a reference (a secret), with which any process can renew and release it")
    .argument("<key...>", "the key to lock; several keys are locked together");
  setAction(program, acquire, async (keys: string[], flags: AcquireFlags) =>
    (await import("./commands/reference.ts")).acquireCommand(keys, flags),
  );
  addEpilog(acquire, {
    examples: [
      "HOLDFAST_REFERENCE=$(holdfast acquire deploy --ttl 10m --wait 1m) || exit",
      "export HOLDFAST_REFERENCE",
      "./step-one.sh && holdfast renew && ./step-two.sh; holdfast release",
    ],
  });
}

type ReferenceAction = "renewCommand" | "releaseCommand" | "checkCommand";

/** renew, release and check: the commands that take a reference. */
function addReferenceCommands(program: Program): void {
  const add = (name: string, description: string, action: ReferenceAction, ...examples: readonly string[]): Command => {
    const command = addLockOptions(program.root.command(name))
      .description(description)
      .argument(
        "[reference]",
        "the reference (default: HOLDFAST_REFERENCE, else standard input, which process lists do not show)",
      );
    addEpilog(command, {
      examples,
      notes: [
        "The exit code is 123 if this reference does not hold the lock (any more). The message gives the reason.",
      ],
    });
    return setAction(program, command, async (reference: string | undefined, flags: ReferenceFlags) =>
      (await import("./commands/reference.ts"))[action](reference, flags),
    );
  };
  add("renew", "renew the lease of a lock by its reference", "renewCommand", "holdfast renew < reference.txt");
  add("release", "release a lock by its reference", "releaseCommand", "holdfast release < reference.txt");
  add(
    "check",
    "check whether a reference still holds its lock; changes nothing",
    "checkCommand",
    "holdfast check && ./step-two.sh",
  );
}

/** revoke: takes a lock from its holder. */
function addRevoke(program: Program): void {
  const revoke = addLockOptions(program.root.command("revoke"))
    .description("take a lock from its holder, who learns of it at once")
    .argument("<key>", "the key")
    .option("--token <token>", "the holder's token, as `holdfast show` prints it; required")
    .option("--now", "free the lock at once, although its holder may still be working")
    .option("--reason <text>", "the reason, for the server's log and events");
  setAction(program, revoke, async (key: string, flags: RevokeFlags) =>
    (await import("./commands/revoke.ts")).revokeCommand(key, flags),
  );
  addEpilog(revoke, {
    examples: ["holdfast revoke deploy --token 1800000001000000 --reason stuck"],
    notes: ["The exit code is 123 if no holder of the key has this token."],
  });
}

/** ls, top, show and watch: what is locked, and what happens. */
function addViews(program: Program): void {
  const { root } = program;
  const ls = addViewOptions(
    root.command("ls").description("list holders and waiters"),
    "print one JSON object per line",
  ).argument("[prefix]", "only keys that begin with this prefix");
  setAction(program, ls, async (prefix: string | undefined, flags: ListFlags) =>
    (await import("./commands/list.ts")).listCommand(prefix, flags),
  );
  addEpilog(ls, { examples: ["holdfast ls", "holdfast ls invoice: --json"] });
  addTop(program);
  const show = addViewOptions(
    root.command("show").description("show one key: its holders, its queue, tokens and the last events"),
    "print one JSON object",
  )
    .argument("<key>", "the key")
    .option("--events <n>", "number of last events to show, at most 100 (default: 10)");
  setAction(program, show, async (key: string, flags: ShowFlags) =>
    (await import("./commands/show.ts")).showCommand(key, flags),
  );
  addEpilog(show, { examples: ["holdfast show deploy", "holdfast show deploy --events 50 --json"] });
  const watch = addViewOptions(
    root.command("watch").description("print events as they happen, until interrupted"),
    "print one JSON object per line",
  )
    .argument("[prefix]", "only keys that begin with this prefix")
    .option("-q, --quiet", "do not report lost and new connections to the server");
  setAction(program, watch, async (prefix: string | undefined, flags: WatchFlags) =>
    (await import("./commands/watch.ts")).watchCommand(prefix, flags),
  );
  addEpilog(watch, { examples: ["holdfast watch", "holdfast watch invoice: --json | jq .event"] });
}

/** top: what is locked, on a screen that follows the store. */
function addTop(program: Program): void {
  const top = addViewOptions(
    program.root.command("top").description("show held locks and waiters by key, again and again, on the whole screen"),
    "print one JSON object; only with --once",
  )
    .argument("[prefix]", "only keys that begin with this prefix")
    .option("--interval <duration>", "time between two reads of the store, at least 100ms", "2s")
    .option("--once", "print one plain table and exit");
  setAction(program, top, async (prefix: string | undefined, flags: TopFlags) =>
    (await import("./commands/top/top.ts")).topCommand(prefix, flags),
  );
  addEpilog(top, {
    examples: ["holdfast top", "holdfast top invoice: --interval 10s", "holdfast top --once --json | jq .rows"],
    notes: [
      "Keys: q leaves; s sorts by the next column, r reverses the order; / filters by key or holder; arrows, j, k and the page keys scroll; space pauses; ? lists all keys.",
      "Reading takes at most one twentieth of the time: if lists take 1 s, the next one begins 19 s later.",
      "If standard input or output is no terminal, or TERM is dumb, it prints one plain table, as with --once.",
    ],
  });
}

function addDoctor(program: Program): void {
  const doctor = addViewOptions(
    program.root.command("doctor").description("check the lock server: connection, versions, clocks, rights, latency"),
    "print one JSON object",
  )
    .option("--key <prefix>", "check the rights on keys that begin with this prefix (default: all keys)")
    .option("--from <url>", "the store that you move from: check whether this store needs a tokenBase");
  setAction(program, doctor, async (flags: DoctorFlags) =>
    (await import("./commands/doctor/doctor.ts")).doctorCommand(flags),
  );
  addEpilog(doctor, {
    examples: [
      "holdfast doctor",
      "holdfast doctor --url holdfasts://locks:7420 --key team-a/",
      "holdfast doctor --url zookeeper://zk1:2181 --from redis://old:6379",
    ],
    notes: [
      "Exit codes: 0 the store can be used, 64 wrong usage, 69 not reached or granting no new locks, 77 refused.",
    ],
  });
}

/** completion, and the hidden command that its scripts call. */
function addCompletion(program: Program): void {
  const { root } = program;
  const completion = root
    .command("completion")
    .description("print a script that makes your shell complete commands and flags")
    .addArgument(new Argument("<shell>", "the shell").choices(["bash", "zsh", "fish"]));
  setAction(program, completion, async (shell: Shell) =>
    (await import("./commands/completion.ts")).completionCommand(shell),
  );
  addEpilog(completion, { examples: ['eval "$(holdfast completion bash)"', "holdfast completion fish | source"] });
  const complete = root.command("complete", { hidden: true }).argument("[word...]");
  setAction(program, complete, async (words: string[]) =>
    (await import("./commands/completion.ts")).completeCommand(words, root),
  );
}

function addServe(program: Program): void {
  const serve = program.root.command("serve").description("run a lock server");
  for (const option of createServeOptions()) serve.addOption(option);
  serve.addOption(new Option("--on-demand").hideHelp());
  setAction(program, serve, async () => (await import("./commands/serve/serve.ts")).serveCommand(serve));
  addEpilog(serve, {
    examples: [
      "holdfast serve --listen holdfast+unix:/run/holdfast/socket \\\n--state /var/lib/holdfast",
      "holdfast serve --listen holdfast://127.0.0.1:7420 --state ./locks",
      "holdfast serve --listen holdfasts://0.0.0.0:7420 --tls-cert cert.pem \\\n--tls-key key.pem --credentials accounts.json --state /var/lib/holdfast",
      "holdfast serve --config /etc/holdfast.json --check",
    ],
    notes: [
      'All flags except --first-start, --config, --check, --json and --quiet can also be set in the environment (--tls-cert as HOLDFAST_TLS_CERT) or in a JSON file ({"tls-cert": "cert.pem"}) that --config or HOLDFAST_CONFIG names. A flag overrides the environment, and the environment overrides the file.',
      "On TERM or INT the server grants no new locks, notifies its clients, saves its state and exits; a second signal ends it at once. On HUP it reloads credentials and certificates; connections stay open, unless their credential was removed.",
      "Exit codes: 0 stopped, 64 wrong usage, 69 an address or the state is not available, or the socket or the lock of the state was removed, 70 stopping took more than 10 s, 74 the state could not be saved, 78 wrong configuration.",
    ],
  });
}

function addGateway(program: Program): void {
  const gateway = program.root.command("gateway").description("serve the locks of any store over HTTP");
  for (const option of createGatewayOptions()) gateway.addOption(option);
  setAction(program, gateway, async () => (await import("./commands/gateway/gateway.ts")).gatewayCommand(gateway));
  addEpilog(gateway, {
    examples: [
      "holdfast gateway --url redis://127.0.0.1",
      "holdfast gateway --url postgres://app@db.example.org/shop --http 0.0.0.0:7421 \\\n--credentials accounts.json --tls-cert cert.pem --tls-key key.pem",
    ],
    notes: [
      "All flags except --config, --check, --json and --quiet can also be set in the environment (--tls-cert as HOLDFAST_TLS_CERT) or in a JSON file that --config or HOLDFAST_CONFIG names, as for `holdfast serve`.",
      "On TERM or INT the gateway answers all waiting requests, withdraws their claims and exits; held locks stay held. On HUP it reloads credentials and certificates.",
      "Exit codes: 0 stopped, 64 wrong usage, 69 the address or the store is not available, 77 the store refused, 78 wrong configuration.",
    ],
  });
}

function addDashboard(program: Program): void {
  const dashboard = program.root.command("dashboard").description("show the locks of any store in a browser");
  for (const option of createDashboardOptions()) dashboard.addOption(option);
  setAction(program, dashboard, async () =>
    (await import("./commands/gateway/dashboard.ts")).dashboardCommand(dashboard),
  );
  addEpilog(dashboard, {
    examples: ["holdfast dashboard --url redis://127.0.0.1", "holdfast dashboard --open --read-only"],
    notes: [
      "The link works once, within 60 s; Enter prints another one. With --credentials the pages ask for a credential instead, and each viewer sees and revokes what the account may.",
      "Without --credentials the pages are all that is served: for the HTTP API use `holdfast gateway`.",
      "Exit codes: as those of `holdfast gateway`.",
    ],
  });
}

function addCredential(program: Program): void {
  const credential = program.root
    .command("credential")
    .helpCommand(false)
    .description("create credentials for a lock server");
  const create = credential
    .command("new")
    .description(
      "create a credential and print it once, with its account for the server's file, which contains only a hash",
    )
    .option("--name <account>", "name of the account", "unnamed")
    .option("--prefix <prefix>", 'allow keys that begin with this prefix, such as "team-a/"; "": all keys', "")
    .option("--rights <list>", "any of acquire, inspect, revoke, admin", "acquire,inspect")
    .option("--max-hold <duration>", "revoke locks on these keys after this time")
    .option("--json", "print one JSON object");
  setAction(program, create, async (flags: NewFlags) =>
    (await import("./commands/credential.ts")).newCredentialCommand(flags),
  );
  addEpilog(create, {
    examples: [
      "holdfast credential new --name billing --prefix billing/",
      "holdfast credential new --name ops --rights inspect,revoke,admin",
    ],
    notes: [
      'A client reads its credential from HOLDFAST_CREDENTIAL, or from the file in HOLDFAST_CREDENTIAL_FILE, never from a url or a flag. To replace a credential: create a new one, add its hash as the second of "hashes" of the account, send HUP to the server, give the clients the new credential, remove the first hash and send HUP again.',
    ],
  });
  const check = credential
    .command("check")
    .description("check a file of accounts and print all its errors")
    .argument("<file>", "the file, as for holdfast serve --credentials");
  setAction(program, check, async (file: string) =>
    (await import("./commands/credential.ts")).checkCredentialsCommand(file),
  );
}

function addTorture(program: Program): void {
  const load = () => import("./commands/torture/torture.ts");
  const torture = program.root
    .command("torture")
    .description("take locks under faults, and judge whether two processes ever held one at once")
    .option("--start <stores>", "start these stores, one after another (default: server)")
    .option("--url <url>", "use this store: only faults of torture's own processes and their connections")
    .option("--driver <module>", "use the driver or store of this module, as with --url")
    .option("--rival <module...>", "torture other lock libraries, by their adapters, instead of Holdfast")
    .option("--faults <list>", "the faults to inject, or none (default: all that are possible)")
    .option("--time <duration>", "how long faults are injected", "60s")
    .option("--seed <number>", "repeat the choices of a run (default: a random number)")
    .option("--out <directory>", "for the history and the reports (default: torture-SEED)")
    .option("-y, --yes", "do not ask before a store of yours is used")
    .option("--json", "print one JSON object for each run")
    .option("-q, --quiet", "print nothing on stderr");
  setAction(program, torture, async (flags: TortureFlags) => (await load()).tortureCommand(flags));
  addEpilog(torture, {
    examples: [
      "holdfast torture",
      "holdfast torture --start redis --time 2m",
      "holdfast torture --url redis://127.0.0.1",
    ],
    notes: [
      "Exit codes: 0 ok, 1 an invariant was violated, 2 unknown: the run shows nothing, as without faults; 64 wrong usage, 69 a store could not be started.",
    ],
  });
  const worker = program.root.command("torture-worker", { hidden: true });
  setAction(program, worker, async () => (await load()).tortureWorkerCommand());
  const register = program.root
    .command("torture-register", { hidden: true })
    .argument("<socket>")
    .argument("<history>")
    .argument("<started-at>");
  setAction(program, register, async (socket: string, history: string, startedAt: string) =>
    (await load()).tortureRegisterCommand(socket, history, startedAt),
  );
}

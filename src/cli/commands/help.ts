/**
 * The text below the flags in a command's help, and the manual: `holdfast help all` as plain text, `holdfast help --man` as a
 * page for man(1). Both are generated from the commands, so that they list exactly the flags that exist.
 */

import type { Command } from "commander";
import { PACKAGE_VERSION } from "../../protocol/handshake.ts";
import { CommandError } from "../errors.ts";
import { printLine } from "../output.ts";

/** The text below the flags of one command. */
export interface Epilog {
  /** Command lines, without a prompt. A continued command line contains a backslash and a newline. */
  readonly examples: readonly string[];
  /** Paragraphs, each on one line. */
  readonly notes?: readonly string[];
}

/** The epilog of each command that has one. */
export type Epilogs = ReadonlyMap<Command, Epilog>;

/** Longer lines are hard to read, even if the terminal is wider. */
const MAX_COLUMNS = 100;

/** The width of help on a stream: the width of its terminal, up to MAX_COLUMNS; 80 columns in a pipe. */
export function helpWidth({ isTTY, columns }: { readonly isTTY?: boolean; readonly columns?: number }): number {
  return Math.min((isTTY === true ? columns : undefined) || 80, MAX_COLUMNS);
}

/** Adds examples verbatim, and notes wrapped to the terminal, to a command's help. */
export function addEpilog(command: Command, epilog: Epilog): Command {
  return command.addHelpText("after", ({ error, command: helpedCommand }) => {
    const { getOutHelpWidth, getErrHelpWidth } = helpedCommand.configureOutput();
    const columns = (error ? getErrHelpWidth : getOutHelpWidth)?.() ?? 80;
    const help = helpedCommand.createHelp();
    const notes = (epilog.notes ?? []).map((note) => help.boxWrap(note, columns));
    return [formatExamples(epilog).join("\n"), ...notes].map((part) => `\n${part}`).join("\n");
  });
}

function formatExamples({ examples }: Epilog): string[] {
  return ["Examples:", ...examples.map((line) => `  $ ${line.replaceAll("\n", "\n      ")}`)];
}

/** Prints the help of one command, or the manual: as plain text for `all`, as a man page for --man. @throws CommandError usage */
export function helpCommand(program: Command, epilogs: Epilogs, names: readonly string[], isManPage: boolean): number {
  if (isManPage) printLine(formatManPage(program, epilogs));
  else if (names.length === 1 && names[0] === "all") printLine(formatManual(program));
  else findCommand(program, names).outputHelp();
  return 0;
}

function findCommand(program: Command, names: readonly string[]): Command {
  let command = program;
  for (const name of names) {
    const subcommand = command.commands.find((candidate) => candidate.name() === name);
    if (subcommand === undefined)
      throw new CommandError("usage", `unknown command "${names.join(" ")}"; see holdfast --help`);
    command = subcommand;
  }
  return command;
}

type Section = readonly [title: string, entries: readonly (readonly [name: string, text: string])[]];

/** The description in the page for man(1). */
const DESCRIPTION: readonly string[] = [
  "Holdfast runs programs under a distributed lock. A lock is named by a key, any text of up to 512 bytes. Waiters are served in order of arrival. A holder has a lease, which is renewed for as long as it works, and a fencing token, which is higher than every token granted on that key before. When a holder dies, its lock goes to the next waiter; when the lock itself is lost, the command that ran under it is ended. Locks are exclusive, shared (--shared) or limited to a number of holders (--permits), and several keys can be locked together.",
  "Without configuration, all commands and programs of one user on one machine share a lock server that is started when it is first needed. Several machines share a server started by holdfast serve, or a Redis or ZooKeeper that they already use; --url or HOLDFAST_URL names it. holdfast run is the everyday command. acquire, renew, check and release pass a lock from one process to another; ls, show, watch and doctor show what is locked and whether the store works.",
];

/** The sections for all commands. */
const COMMON_SECTIONS: readonly Section[] = [
  [
    "Environment",
    [
      ["HOLDFAST_URL", "the store, if --url is not given"],
      ["HOLDFAST_CREDENTIAL", "the credential for the server; a secret"],
      ["HOLDFAST_CREDENTIAL_FILE", "a file that contains the credential, read again for each connection"],
      ["HOLDFAST_REFERENCE", "the reference for renew, release and check; a secret"],
      ["HOLDFAST_DIR", "the directory of the server on demand, instead of the user's default directory"],
      ["HOLDFAST_LISTEN, ...", "the settings of serve, each named after its flag"],
      ["NO_COLOR", "turns colours off, also on a terminal"],
    ],
  ],
  [
    "Urls",
    [
      ["holdfast://host:7420", "a server over TCP; without TLS a credential is sent only to this machine"],
      ["holdfasts://host:7420?ca=/path", "a server over TLS; parameters: ca, cert, key, servername"],
      ["holdfast+unix:/path/to/socket", "a server on a Unix socket"],
      [
        "redis://host:6379, rediss://",
        "Redis; parameters: prefix, guardDataLoss, replicas, silenceWarnings, ca, servername",
      ],
      ["redis+sentinel://host,host/name", "Redis behind Sentinels, and rediss+sentinel://"],
      ["redis+cluster://host:6379", "a Redis Cluster, and rediss+cluster://"],
      ["zookeeper://host:2181,host:2181", "ZooKeeper; parameters: root, sessionMs, family, fair, tokenBase"],
      ["zookeepers://host:2281?ca=/path", "ZooKeeper over TLS"],
      [
        "postgres://host:5432/database",
        "PostgreSQL, and postgresql://; parameters: schema, prefix, createTables, guardDataLoss, recall, silenceWarnings, those of the library (sslmode, sslrootcert)",
      ],
      [
        "mysql://host:3306/database",
        "MariaDB or MySQL, and mariadb://; parameters: prefix, createTables, guardDataLoss, silenceWarnings, those of the library (ssl, ssl-ca, socketPath)",
      ],
      [
        "postgres+advisory://host/db",
        "advisory locks of PostgreSQL, without a table, and postgresql+advisory://; parameters: sessionMs, maxWaitConnections, silenceWarnings, those of the library",
      ],
      [
        "mysql+advisory://host/db",
        "GET_LOCK of MariaDB or MySQL, without a table, and mariadb+advisory://; parameters as above",
      ],
      ["sqlite:./locks.db", "a file of SQLite, for the processes of one machine; parameters: prefix, guardDataLoss"],
      ["memory:", "a store within one process, for tests"],
    ],
  ],
  [
    "Exit codes",
    [
      ["0", "success"],
      ["64", "wrong usage"],
      ["69", "the store cannot be reached or grants no new locks"],
      ["70", "internal error (please report it)"],
      ["74", "a result, the record of what a run holds, or the state of serve cannot be written"],
      ["77", "refused by the store or by file permissions"],
      ["78", "wrong configuration"],
      ["121", "deadlock: the run would wait for an outer run"],
      ["122", "--max-hold passed"],
      ["123", "the lock is not held, or was lost"],
      ["124", "the lock was not granted in time, or is busy"],
      ["126, 127", "the command of run cannot be executed, or was not found"],
      ["128+n", "ended by signal n"],
    ],
  ],
];

/** The --help text of every visible command, each under a heading. */
function formatManual(program: Command): string {
  const commands = [program, ...listVisibleCommands(program)];
  const parts = commands.map(
    (command) => `${fullCommandName(command).toUpperCase()}\n\n${captureHelp(command).trim()}`,
  );
  const layout = program.createHelp();
  layout.prepareContext({ helpWidth: program.configureOutput().getOutHelpWidth?.() ?? 80 });
  const common = COMMON_SECTIONS.map(([title, entries]) => {
    const width = Math.max(...entries.map(([name]) => name.length));
    return [`${title}:`, ...entries.map(([name, text]) => layout.formatItem(name, width, text, layout))].join("\n");
  });
  return [...parts, common.join("\n\n")].join("\n\n\n");
}

/** The text that `--help` prints, with examples and notes. helpInformation() would leave these out. */
function captureHelp(command: Command): string {
  let text = "";
  command.configureOutput({
    ...command.configureOutput(),
    writeOut: (part) => {
      text += part;
    },
  });
  command.outputHelp();
  return text;
}

function listVisibleCommands(program: Command): Command[] {
  const below = program.createHelp().visibleCommands(program);
  return below.flatMap((command) => [command as Command, ...listVisibleCommands(command as Command)]);
}

function fullCommandName(command: Command): string {
  const names: string[] = [];
  for (let current: Command | null = command; current !== null; current = current.parent) names.unshift(current.name());
  return names.join(" ");
}

function formatManPage(program: Command, epilogs: Epilogs): string {
  return [
    `.TH HOLDFAST 1 "" "holdfast ${escapeRoff(PACKAGE_VERSION)}" "User Commands"`,
    ".SH NAME",
    `holdfast \\- ${escapeRoff(program.description())}`,
    ".SH SYNOPSIS",
    ".nf",
    ...listVisibleCommands(program).map((command) => escapeRoff(`${fullCommandName(command)} ${command.usage()}`)),
    ".fi",
    ".SH DESCRIPTION",
    ...DESCRIPTION.flatMap((paragraph) => [".PP", escapeRoff(paragraph)]),
    ...formatEpilog(epilogs.get(program)),
    ".SH OPTIONS",
    ...formatOptions(program),
    ".SH COMMANDS",
    ...listVisibleCommands(program).flatMap((command) => formatCommandSection(command, epilogs.get(command))),
    ...COMMON_SECTIONS.flatMap(([title, entries]) => [
      `.SH ${title.toUpperCase()}`,
      ...entries.flatMap(([name, text]) => formatTagged(name, text)),
    ]),
  ].join("\n");
}

function formatCommandSection(command: Command, epilog: Epilog | undefined): string[] {
  const args = command.createHelp().visibleArguments(command);
  return [
    `.SS "${escapeRoff(fullCommandName(command))}"`,
    escapeRoff(command.description()),
    ...args.flatMap((argument) => formatTagged(argument.name(), argument.description)),
    ...formatOptions(command),
    ...formatEpilog(epilog),
  ];
}

function formatOptions(command: Command): string[] {
  const help = command.createHelp();
  return help.visibleOptions(command).flatMap((option) => formatTagged(option.flags, help.optionDescription(option)));
}

/** Notes as paragraphs, examples verbatim line by line. */
function formatEpilog(epilog: Epilog | undefined): string[] {
  if (epilog === undefined) return [];
  const notes = (epilog.notes ?? []).flatMap((note) => [".PP", escapeRoff(note)]);
  return [".PP", ".nf", ...formatExamples(epilog).flatMap(escapeLines), ".fi", ...notes];
}

function escapeLines(text: string): string[] {
  return text.split("\n").map(escapeRoff);
}

function formatTagged(name: string, text: string): string[] {
  return [".TP", `.B ${escapeRoff(name)}`, escapeRoff(text)];
}

/** Escapes every character that has a meaning to roff. */
function escapeRoff(text: string): string {
  return text
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replaceAll('"', "\\(dq")
    .replaceAll("'", "\\(aq")
    .replaceAll("`", "\\(ga")
    .replaceAll("^", "\\(ha")
    .replaceAll("~", "\\(ti")
    .replace(/^\./, "\\&.");
}

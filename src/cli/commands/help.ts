/**
 * Everything the commands say of themselves, as one text: `holdfast help all` for people, `holdfast help --man` in the
 * form that man(1) reads. Both are made from the commands, so they tell of no flag that is gone and miss none.
 */

import type { Command } from "commander";
import { PACKAGE_VERSION } from "../../protocol/handshake.ts";
import { formatExamples, getEpilog } from "../help-epilog.ts";
import { printLine } from "../output.ts";

/** Prints the help of all commands, or of one. False: there is no such command. */
export function printHelp(program: Command, names: readonly string[]): boolean {
  if (names.length === 1 && names[0] === "all") {
    printLine(formatManual(program));
    return true;
  }
  let command = program;
  for (const name of names) {
    const subcommand = command.commands.find((candidate) => candidate.name() === name);
    if (subcommand === undefined) return false;
    command = subcommand;
  }
  command.outputHelp();
  return true;
}

/** Prints the page for man(1). */
export function printManPage(program: Command): number {
  printLine(formatManPage(program));
  return 0;
}

type Section = readonly [title: string, entries: readonly (readonly [name: string, text: string])[]];

/** What the program is, for the page of man(1). */
const DESCRIPTION: readonly string[] = [
  "Holdfast runs programs under a distributed lock. A lock is named by a key, any text of up to 512 bytes. Waiters are served in order of arrival. A holder has a lease, which is renewed for as long as it works, and a fencing token, which is higher than every token granted on that key before. When a holder dies, its lock goes to the next waiter; when the lock itself is lost, the command that ran under it is ended. Locks are exclusive, shared (--shared) or limited to a number of holders (--permits), and several keys can be locked together.",
  "Without configuration, all commands and programs of one user on one machine share a lock server that is started when it is first needed. Several machines share a server started by holdfast serve, or a Redis or ZooKeeper that they already use; --url or HOLDFAST_URL names it. holdfast run is the everyday command. acquire, renew, check and release carry a lock from one process to another; ls, show, watch and doctor show what is locked and whether the store is in order.",
];

/** What concerns all commands. */
const COMMON_SECTIONS: readonly Section[] = [
  [
    "Environment",
    [
      ["HOLDFAST_URL", "the store, where no --url is given"],
      ["HOLDFAST_CREDENTIAL", "what the server knows us by; a secret"],
      ["HOLDFAST_CREDENTIAL_FILE", "the file that it stands in, read again for each connection"],
      ["HOLDFAST_REFERENCE", "the lock for renew, release and check; a secret"],
      ["HOLDFAST_DIR", "the directory of the server on demand, instead of the one that depends on the user alone"],
      ["HOLDFAST_LISTEN, ...", "the settings of serve, each under the name of its flag"],
      ["NO_COLOR", "no colours, also in a terminal"],
    ],
  ],
  [
    "Urls",
    [
      ["holdfast://host:7420", "a server over TCP; a credential goes only to this machine in plain sight"],
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
      ["memory:", "within one process; for tests"],
    ],
  ],
  [
    "Exit codes",
    [
      ["0", "done"],
      ["64", "wrong usage"],
      ["69", "store not reached, or not granting"],
      ["70", "a defect of ours"],
      ["74", "a result, what a run holds, or the state of serve cannot be written"],
      ["77", "refused"],
      ["78", "wrong configuration"],
      ["121", "would wait for its own ancestor"],
      ["122", "--max-hold passed"],
      ["123", "not held, or lost"],
      ["124", "not granted in time, or busy"],
      ["126, 127", "the command of run cannot be executed, was not found"],
      ["128+n", "ended by signal n"],
    ],
  ],
];

/** The texts of --help of every command that is not hidden, below headings. */
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

/** What `--help` prints: outputHelp() writes it, with what stands behind; helpInformation() gives only the middle. */
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

function formatManPage(program: Command): string {
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
    ...formatEpilog(program),
    ".SH OPTIONS",
    ...formatOptions(program),
    ".SH COMMANDS",
    ...listVisibleCommands(program).flatMap(formatCommandSection),
    ...COMMON_SECTIONS.flatMap(([title, entries]) => [
      `.SH ${title.toUpperCase()}`,
      ...entries.flatMap(([name, text]) => formatTagged(name, text)),
    ]),
  ].join("\n");
}

function formatCommandSection(command: Command): string[] {
  const args = command.createHelp().visibleArguments(command);
  return [
    `.SS "${escapeRoff(fullCommandName(command))}"`,
    escapeRoff(command.description()),
    ...args.flatMap((argument) => formatTagged(argument.name(), argument.description)),
    ...formatOptions(command),
    ...formatEpilog(command),
  ];
}

function formatOptions(command: Command): string[] {
  const help = command.createHelp();
  return help.visibleOptions(command).flatMap((option) => formatTagged(option.flags, help.optionDescription(option)));
}

/** Notes as paragraphs, examples line by line as they stand. */
function formatEpilog(command: Command): string[] {
  const epilog = getEpilog(command);
  const notes = epilog.notes.flatMap((note) => [".PP", escapeRoff(note)]);
  return epilog.examples.length === 0
    ? notes
    : [".PP", ".nf", ...formatExamples(epilog).flatMap(escapeLines), ".fi", ...notes];
}

function escapeLines(text: string): string[] {
  return text.split("\n").map(escapeRoff);
}

function formatTagged(name: string, text: string): string[] {
  return [".TP", `.B ${escapeRoff(name)}`, escapeRoff(text)];
}

/** As text: no character of it means anything to the formatter. */
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

/** `holdfast completion SHELL`: prints a script for the shell that completes commands and flags. It is generated from the commands. */

import type { Command } from "commander";
import { CommandError } from "../errors.ts";
import { printLine } from "../output.ts";

/** The supported shells. */
const SHELLS = ["bash", "zsh", "fish"] as const;
type Shell = (typeof SHELLS)[number];

interface Flag {
  /** Without dashes. */
  readonly long: string;
  readonly short: string | undefined;
  readonly takesValue: boolean;
  readonly help: string;
}

interface CompletedCommand {
  /** "run", or "credential new". */
  readonly name: string;
  readonly help: string;
  readonly flags: readonly Flag[];
  readonly choices: readonly string[];
}

/** Prints the script. @throws CommandError usage for another shell */
export function completionCommand(shell: string, program: Command): number {
  const scripts = { bash: bashScript, zsh: zshScript, fish: fishScript };
  if (!SHELLS.includes(shell as Shell)) {
    throw new CommandError("usage", `the shell must be one of ${SHELLS.join(", ")}, not ${shell}`);
  }
  printLine(scripts[shell as Shell](listCommands(program)));
  return 0;
}

function listCommands(program: Command): CompletedCommand[] {
  return visibleCommands(program).flatMap((command) => {
    const subcommands = visibleCommands(command);
    const verb = describeCommand(
      command,
      command.name(),
      subcommands.map((subcommand) => subcommand.name()),
    );
    return [
      verb,
      ...subcommands.map((subcommand) => describeCommand(subcommand, `${command.name()} ${subcommand.name()}`, [])),
    ];
  });
}

function visibleCommands(program: Command): readonly Command[] {
  return program.createHelp().visibleCommands(program);
}

/** The possible values of an argument. */
const CHOICES: Readonly<Record<string, readonly string[]>> = { completion: SHELLS };

function describeCommand(command: Command, name: string, subcommands: readonly string[]): CompletedCommand {
  const flags = command
    .createHelp()
    .visibleOptions(command)
    .map(({ long, short, flags: flagText, description }) => ({
      long: (long ?? "").replace(/^--/, ""),
      short: short?.replace(/^-/, ""),
      takesValue: /[<[]/.test(flagText),
      help: description,
    }));
  return { name, help: command.description(), flags, choices: [...subcommands, ...(CHOICES[name] ?? [])] };
}

function bashScript(commands: readonly CompletedCommand[]): string {
  const cases = commands.map(({ name, flags, choices }) => {
    const completions = [
      ...choices,
      ...flags.flatMap(({ long, short }) => [`--${long}`, ...(short === undefined ? [] : [`-${short}`])]),
    ];
    const valueFlags = flags.flatMap(({ long, short, takesValue }) =>
      takesValue ? [`--${long}`, ...(short === undefined ? [] : [`-${short}`])] : [],
    );
    return `    ${quoteShell(name)}) words=${quoteShell(completions.join(" "))} takers=${quoteShell(` ${valueFlags.join(" ")} `)} ;;`;
  });
  const top = commands.filter(({ name }) => !name.includes(" ")).map(({ name }) => name);
  return `# bash completion for holdfast; in ~/.bashrc: eval "$(holdfast completion bash)"
_holdfast() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words="" takers="" i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ \${COMP_WORDS[i]} == -- ]]; then
      # the words after -- are another command
      COMPREPLY=($(compgen -c -- "$current"))
      return
    fi
  done
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W ${quoteShell(`${top.join(" ")} --help --version`)} -- "$current"))
    return
  fi
  case "\${COMP_WORDS[1]} \${COMP_WORDS[2]}" in
${subcommandCases(commands, cases)}
    *) case "\${COMP_WORDS[1]}" in
${cases.filter((_, index) => !commands[index]?.name.includes(" ")).join("\n")}
    esac ;;
  esac
  # the value of a flag is not a flag; it may be a file, which bash completes by default
  [[ $takers == *" \${COMP_WORDS[COMP_CWORD - 1]} "* ]] && return
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _holdfast holdfast`;
}

function subcommandCases(commands: readonly CompletedCommand[], cases: readonly string[]): string {
  return cases.filter((_, index) => commands[index]?.name.includes(" ")).join("\n");
}

function zshScript(commands: readonly CompletedCommand[]): string {
  const described = (list: readonly (readonly [string, string])[]): string =>
    list.map(([word, help]) => quoteShell(`${word.replaceAll(":", "\\:")}:${help}`)).join(" ");
  const top = commands.filter(({ name }) => !name.includes(" ")).map(({ name, help }) => [name, help] as const);
  const cases = commands.map(({ name, flags, choices }) => {
    const completions = [
      ...choices.map((word) => [word, commands.find((verb) => verb.name === `${name} ${word}`)?.help ?? word] as const),
      ...flags.map(({ long, help }) => [`--${long}`, help] as const),
    ];
    return `    ${quoteShell(name)}) choices=(${described(completions)}) ;;`;
  });
  return `#compdef holdfast
# zsh completion for holdfast; in ~/.zshrc: eval "$(holdfast completion zsh)"
_holdfast() {
  local -a choices
  if (( \${words[(I)--]} > 0 && CURRENT > \${words[(I)--]} )); then
    _normal
    return
  fi
  if (( CURRENT == 2 )); then
    choices=(${described(top)})
    _describe command choices
    return
  fi
  case "\${words[2]} \${words[3]}" in
${subcommandCases(commands, cases)}
    *) case "\${words[2]}" in
${cases.filter((_, index) => !commands[index]?.name.includes(" ")).join("\n")}
    esac ;;
  esac
  _describe choice choices
  _files
}
compdef _holdfast holdfast`;
}

function fishScript(commands: readonly CompletedCommand[]): string {
  const lines = commands.flatMap(({ name, help, flags, choices: words }) => {
    const [first, second] = name.split(" ") as [string, string | undefined];
    const condition =
      second === undefined ? `__fish_seen_subcommand_from ${first}` : `__fish_seen_subcommand_from ${second}`;
    const commandLines =
      second === undefined
        ? [`complete -c holdfast -n __fish_use_subcommand -a ${first} -d ${quoteShell(help)}`]
        : [`complete -c holdfast -n '__fish_seen_subcommand_from ${first}' -a ${second} -d ${quoteShell(help)}`];
    const choices = second === undefined && words.length > 0 && CHOICES[name] !== undefined ? words : [];
    return [
      ...commandLines,
      ...choices.map((word) => `complete -c holdfast -n '${condition}' -a ${word}`),
      ...flags.map(({ long, short, takesValue, help: helpText }) =>
        [
          `complete -c holdfast -n '${condition}' -l ${long}`,
          ...(short === undefined ? [] : [`-s ${short}`]),
          ...(takesValue ? ["-r"] : []),
          `-d ${quoteShell(helpText)}`,
        ].join(" "),
      ),
    ];
  });
  return ["# fish completion for holdfast; in config.fish: holdfast completion fish | source", ...lines].join("\n");
}

/** The text in single quotes, which all three shells read in the same way. */
function quoteShell(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

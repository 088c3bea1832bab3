/** `holdfast completion SHELL`: a script by which the shell completes our commands and flags, made from the commands themselves. */

import type { Command } from "commander";
import { CommandError } from "./failure.ts";
import { print } from "./output.ts";

/** Shells that there is a script for. */
const SHELLS = ["bash", "zsh", "fish"] as const;
type Shell = (typeof SHELLS)[number];

interface Flag {
  /** Without dashes. */
  readonly long: string;
  readonly short: string | undefined;
  readonly takesValue: boolean;
  readonly help: string;
}

interface Verb {
  /** "run", or "credential new". */
  readonly name: string;
  readonly help: string;
  readonly flags: readonly Flag[];
  readonly words: readonly string[];
}

/** Prints the script. @throws CommandError usage for another shell */
export function completion(shell: string, program: Command): number {
  const scripts = { bash, zsh, fish };
  if (!SHELLS.includes(shell as Shell)) {
    throw new CommandError("usage", `the shell must be one of ${SHELLS.join(", ")}, not ${shell}`);
  }
  print(scripts[shell as Shell](verbsOf(program)));
  return 0;
}

function verbsOf(program: Command): Verb[] {
  return shownCommands(program).flatMap((command) => {
    const below = shownCommands(command);
    const verb = verbOf(
      command,
      command.name(),
      below.map((one) => one.name()),
    );
    return [verb, ...below.map((one) => verbOf(one, `${command.name()} ${one.name()}`, []))];
  });
}

function shownCommands(program: Command): readonly Command[] {
  return program.createHelp().visibleCommands(program);
}

/** What may stand where a command wants one of a few words. */
const WORDS: Readonly<Record<string, readonly string[]>> = { completion: SHELLS };

function verbOf(command: Command, name: string, below: readonly string[]): Verb {
  const flags = command
    .createHelp()
    .visibleOptions(command)
    .map(({ long, short, flags: text, description }) => ({
      long: (long ?? "").replace(/^--/, ""),
      short: short?.replace(/^-/, ""),
      takesValue: /[<[]/.test(text),
      help: description,
    }));
  return { name, help: command.description(), flags, words: [...below, ...(WORDS[name] ?? [])] };
}

function bash(verbs: readonly Verb[]): string {
  const cases = verbs.map(({ name, flags, words }) => {
    const all = [
      ...words,
      ...flags.flatMap(({ long, short }) => [`--${long}`, ...(short === undefined ? [] : [`-${short}`])]),
    ];
    const takers = flags.flatMap(({ long, short, takesValue }) =>
      takesValue ? [`--${long}`, ...(short === undefined ? [] : [`-${short}`])] : [],
    );
    return `    ${quoted(name)}) words=${quoted(all.join(" "))} takers=${quoted(` ${takers.join(" ")} `)} ;;`;
  });
  const top = verbs.filter(({ name }) => !name.includes(" ")).map(({ name }) => name);
  return `# bash completion for holdfast; in ~/.bashrc: eval "$(holdfast completion bash)"
_holdfast() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words="" takers="" i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ \${COMP_WORDS[i]} == -- ]]; then
      # what stands behind -- is a command of its own
      COMPREPLY=($(compgen -c -- "$current"))
      return
    fi
  done
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W ${quoted(`${top.join(" ")} --help --version`)} -- "$current"))
    return
  fi
  case "\${COMP_WORDS[1]} \${COMP_WORDS[2]}" in
${deeper(verbs, cases)}
    *) case "\${COMP_WORDS[1]}" in
${cases.filter((_, at) => !verbs[at]?.name.includes(" ")).join("\n")}
    esac ;;
  esac
  # what stands behind a flag that takes a value is no flag; it may be a file, which bash completes by itself
  [[ $takers == *" \${COMP_WORDS[COMP_CWORD - 1]} "* ]] && return
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _holdfast holdfast`;
}

function deeper(verbs: readonly Verb[], cases: readonly string[]): string {
  return cases.filter((_, at) => verbs[at]?.name.includes(" ")).join("\n");
}

function zsh(verbs: readonly Verb[]): string {
  const described = (list: readonly (readonly [string, string])[]): string =>
    list.map(([word, help]) => quoted(`${word.replaceAll(":", "\\:")}:${help}`)).join(" ");
  const top = verbs.filter(({ name }) => !name.includes(" ")).map(({ name, help }) => [name, help] as const);
  const cases = verbs.map(({ name, flags, words }) => {
    const all = [
      ...words.map((word) => [word, verbs.find((verb) => verb.name === `${name} ${word}`)?.help ?? word] as const),
      ...flags.map(({ long, help }) => [`--${long}`, help] as const),
    ];
    return `    ${quoted(name)}) choices=(${described(all)}) ;;`;
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
${deeper(verbs, cases)}
    *) case "\${words[2]}" in
${cases.filter((_, at) => !verbs[at]?.name.includes(" ")).join("\n")}
    esac ;;
  esac
  _describe choice choices
  _files
}
compdef _holdfast holdfast`;
}

function fish(verbs: readonly Verb[]): string {
  const lines = verbs.flatMap(({ name, help, flags, words }) => {
    const [first, second] = name.split(" ") as [string, string | undefined];
    const here =
      second === undefined ? `__fish_seen_subcommand_from ${first}` : `__fish_seen_subcommand_from ${second}`;
    const self =
      second === undefined
        ? [`complete -c holdfast -n __fish_use_subcommand -a ${first} -d ${quoted(help)}`]
        : [`complete -c holdfast -n '__fish_seen_subcommand_from ${first}' -a ${second} -d ${quoted(help)}`];
    const choices = second === undefined && words.length > 0 && WORDS[name] !== undefined ? words : [];
    return [
      ...self,
      ...choices.map((word) => `complete -c holdfast -n '${here}' -a ${word}`),
      ...flags.map(({ long, short, takesValue, help: said }) =>
        [
          `complete -c holdfast -n '${here}' -l ${long}`,
          ...(short === undefined ? [] : [`-s ${short}`]),
          ...(takesValue ? ["-r"] : []),
          `-d ${quoted(said)}`,
        ].join(" "),
      ),
    ];
  });
  return ["# fish completion for holdfast; in config.fish: holdfast completion fish | source", ...lines].join("\n");
}

/** Between single quotation marks, as all three shells read them. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * `holdfast completion SHELL` prints a script for the shell. The script calls the hidden command `holdfast complete`
 * with the words before the cursor, and that prints what may follow them.
 */

import type { Command } from "commander";
import { printLine } from "../output.ts";

/** A supported shell. */
export type Shell = keyof typeof SCRIPTS;

/**
 * The words after -- are another command. Where nothing may follow, bash and fish complete the names of files by
 * themselves.
 */
const SCRIPTS = {
  bash: `# bash completion for holdfast; in ~/.bashrc: eval "$(holdfast completion bash)"
_holdfast() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words=("\${COMP_WORDS[@]:1:COMP_CWORD-1}")
  if [[ " \${words[*]} " == *" -- "* ]]; then
    COMPREPLY=($(compgen -c -- "$current"))
  else
    COMPREPLY=($(compgen -W "$(holdfast complete -- "\${words[@]}" | cut -f 1)" -- "$current"))
  fi
}
complete -o default -F _holdfast holdfast`,
  zsh: `#compdef holdfast
# zsh completion for holdfast; in ~/.zshrc: eval "$(holdfast completion zsh)"
_holdfast() {
  local -i dashes=\${words[(i)--]}
  if (( dashes < CURRENT )); then
    shift $dashes words
    (( CURRENT -= dashes ))
    _normal
    return
  fi
  local -a choices=(\${\${(f)"$(holdfast complete -- "\${(@)words[2,CURRENT-1]}")"}/$'\\t'/:})
  _describe choice choices
  _files
}
compdef _holdfast holdfast`,
  fish: `# fish completion for holdfast; in config.fish: holdfast completion fish | source
complete -c holdfast -a '(holdfast complete -- (commandline -opc)[2..])'`,
};

/** Prints the script. */
export function completionCommand(shell: Shell): number {
  printLine(SCRIPTS[shell]);
  return 0;
}

/** Prints what may follow these words, each with its help after a tab. */
export function completeCommand(words: readonly string[], program: Command): number {
  for (const [word, help] of listNextWords(words, program)) printLine(`${word}\t${help}`);
  return 0;
}

function listNextWords(words: readonly string[], program: Command): readonly (readonly [string, string])[] {
  let command = program;
  for (const word of words) command = command.commands.find((candidate) => candidate.name() === word) ?? command;
  const help = command.createHelp();
  const options = help.visibleOptions(command);
  const last = words.at(-1) ?? "";
  // the value of a flag, or a word of another command
  if (options.some(({ short, long, required }) => required && [short, long].includes(last)) || words.includes("--"))
    return [];
  return [
    ...help.visibleCommands(command).map((subcommand) => [subcommand.name(), subcommand.description()] as const),
    ...command.registeredArguments.flatMap(({ argChoices = [] }) => argChoices.map((choice) => [choice, ""] as const)),
    ...options.flatMap(({ short, long, description }) =>
      [long, short].filter((flag) => flag !== undefined).map((flag) => [flag, description] as const),
    ),
  ];
}

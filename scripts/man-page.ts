// The manual page: src/cli/holdfast.1, with the --help of each command.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const TEMPLATE = "src/cli/holdfast.1";

/** `program`: the built command line. */
export function renderManPage(program: string): string {
  const run = (words: readonly string[]): string =>
    execFileSync(process.execPath, [program, ...words], { encoding: "utf8" }).trim();
  const renderCommand = (words: readonly string[]): string[] => {
    const parts = run([...words, "--help"]).split("\n\n");
    const list = parts.find((part) => part.startsWith("Commands:\n")) ?? "";
    const subcommands = [...list.matchAll(/^ {2}(\w+)/gm)].map(([, name]) => name as string);
    return [
      `.SS "${escapeRoff(["holdfast", ...words].join(" "))}"`,
      ...parts.flatMap(renderPart),
      ...subcommands.filter((name) => name !== "help").flatMap((name) => renderCommand([...words, name])),
    ];
  };
  return readFileSync(TEMPLATE, "utf8")
    .replace("@VERSION@", run(["--version"]))
    .replace("@COMMANDS@", () => renderCommand([]).join("\n"));
}

/** A part of the help: examples, a list of arguments, flags or commands, or a paragraph. */
function renderPart(part: string): string[] {
  const [title = "", ...lines] = part.split("\n");
  if (title === "Examples:") return [".PP", title, ".nf", ...lines.map(escapeRoff), ".fi"];
  if (!title.endsWith(":") || lines.length === 0) return [".PP", escapeRoff(part.replaceAll("\n", " "))];
  return part
    .split(/\n(?= {2}\S)/)
    .slice(1)
    .flatMap((item) => {
      const [name = "", ...text] = item.trim().split(/ {2,}|\n */);
      return [".TP", `.B ${escapeRoff(name)}`, escapeRoff(text.join(" "))];
    });
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

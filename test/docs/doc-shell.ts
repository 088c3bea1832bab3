// The parts of a shell and of curl that the pages use: variables, quotes, and curl with -s, --json, -H and a url.

import { request } from "../support/http-fixture.ts";

/** The words of a command, with $NAME replaced outside of single quotes. */
export function splitWords(command: string, variables: ReadonlyMap<string, string>): string[] {
  const words: string[] = [];
  let word: string | null = null;
  let quote = "";
  for (let index = 0; index < command.length; index++) {
    const char = command[index] as string;
    if (quote === "" && char === " ") {
      if (word !== null) words.push(word);
      word = null;
      continue;
    }
    word ??= "";
    const name = quote === "'" ? undefined : /^\$([A-Z]+)/.exec(command.slice(index))?.[1];
    if (quote === "" && (char === "'" || char === '"')) quote = char;
    else if (char === quote) quote = "";
    else if (name === undefined) word += char;
    else {
      const value = variables.get(name);
      if (value === undefined) throw new Error(`$${name} is not set`);
      word += value;
      index += name.length;
    }
  }
  if (quote !== "") throw new Error("a quote is not closed");
  if (word !== null) words.push(word);
  return words;
}

/** What curl would print. @throws Error for an unsupported option */
export async function runCurl(words: readonly string[]): Promise<string> {
  let url: URL | null = null;
  let raw: string | undefined;
  const headers: { [name: string]: string } = {};
  for (let index = 1; index < words.length; index++) {
    const word = words[index] as string;
    if (word === "-s") continue;
    if (word === "--json") raw = words[++index] as string;
    else if (word === "-H") {
      const [name = "", ...value] = (words[++index] as string).split(":");
      headers[name.trim()] = value.join(":").trim();
    } else if (word.startsWith("-") || url !== null) throw new Error(`what is ${word} to curl?`);
    else url = new URL(word);
  }
  if (url === null) throw new Error("no url");
  const method = raw === undefined ? "GET" : "POST";
  const requestOptions = { method, headers, ...(raw !== undefined && { raw }) };
  return (await request(url.origin, url.pathname + url.search, requestOptions)).text;
}

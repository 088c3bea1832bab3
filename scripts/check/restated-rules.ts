import { readFileSync } from "node:fs";

const PAGE = "docs/design/rules.md";
const RULES = ["admission", "token", "floor"] as const;

/** The places that restate a rule of the lock table, by their comments, are those that the page of the rules lists. */
export function findUnlistedRules(paths: readonly string[], page: string = readFileSync(PAGE, "utf8")): string[] {
  return RULES.flatMap((rule) => {
    const [, section = ""] = new RegExp(`^## The ${rule} rule$(.*?)(?=^## |(?![^]))`, "ms").exec(page) ?? [];
    const listed = [...section.matchAll(/^\| `([^`]+)` \|/gm)].map(([, path]) => path as string);
    const comment = `restates the ${rule} rule`;
    const commented = paths.filter((path) => readFileSync(path, "utf8").toLowerCase().includes(comment));
    const unlisted = commented.filter((path) => !listed.includes(path));
    const dead = listed.filter((path) => !commented.includes(path));
    return [
      ...unlisted.map((path) => `${path} ${comment}, and ${PAGE} does not list it`),
      ...dead.map((path) => `${PAGE} lists ${path}, which has no comment "${comment}"`),
    ];
  });
}

/** The command that repeats a run, for its reports. */

import type { RepeatCommand } from "../../../torture/report/summary.ts";
import type { StoreName } from "../../../torture/stores/stores.ts";
import { describeStore } from "../../store-choice.ts";
import type { TortureSettings } from "./options.ts";

/**
 * @param store null: that of the user
 * @param subjectPath null: Holdfast
 */
export function createRepeatCommand(
  { choice, faults, ms, seed }: Pick<TortureSettings, "choice" | "faults" | "ms" | "seed">,
  store: StoreName | null,
  subjectPath: string | null,
): RepeatCommand {
  const words = ["holdfast", "torture"];
  let note: string | null = null;
  if (store !== null) words.push("--start", store);
  else if (choice?.driver !== undefined) words.push("--driver", choice.driver);
  else if (choice !== null) {
    const shown = describeStore(choice);
    words.push("--url", shown);
    if (shown !== choice.url) note = "The url is shown without user and password: give the complete one with --url.";
  }
  if (subjectPath !== null) words.push("--rival", subjectPath);
  words.push("--faults", faults.join(",") || "none");
  words.push("--time", ms % 1_000 === 0 ? `${ms / 1_000}s` : `${ms}ms`, "--seed", String(seed));
  return { command: words.map(quoteForShell).join(" "), note };
}

function quoteForShell(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

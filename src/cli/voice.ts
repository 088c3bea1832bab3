/** What a command tells people on stderr while it works. */

import { say } from "./output.ts";

/** How much a command says of itself. */
export interface Voice {
  /** What a person at the terminal wants to know. Not with --quiet or --json. */
  tell(sentence: string): void;
  /** What only --verbose shows. */
  detail(sentence: string): void;
}

/** The voice of these flags. */
export function voiceOf(flags: {
  readonly quiet?: boolean;
  readonly verbose?: boolean;
  readonly json?: boolean;
}): Voice {
  const mute = (): void => undefined;
  const isMute = flags.quiet === true || (flags.json === true && flags.verbose !== true);
  return { tell: isMute ? mute : say, detail: flags.verbose === true && flags.quiet !== true ? say : mute };
}

/** Whether the window is narrow: rows are then cards of two lines. */

import { useEffect, useState } from "preact/hooks";

/** As in the style sheet. */
const NARROW = "(max-width: 720px)";

export function useNarrow(): boolean {
  const [isNarrow, setNarrow] = useState(() => matchMedia(NARROW).matches);
  useEffect(() => {
    const media = matchMedia(NARROW);
    const follow = (): void => setNarrow(media.matches);
    media.addEventListener("change", follow);
    return () => media.removeEventListener("change", follow);
  }, []);
  return isNarrow;
}

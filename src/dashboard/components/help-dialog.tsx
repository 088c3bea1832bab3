/** The keys of the keyboard. */

import { Dialog } from "./dialog.tsx";

const KEYS: readonly (readonly [keys: readonly string[], effect: string])[] = [
  [["/"], "search, or filter"],
  [["j"], "next row"],
  [["k"], "row before"],
  [["Enter"], "open the row"],
  [["Esc"], "leave a field, a dialog or a key"],
  [["g", "k"], "Keys"],
  [["g", "h"], "Holders"],
  [["g", "e"], "Events"],
  [["g", "n"], "Now"],
  [["g", "s"], "Store"],
  [["p"], "pause the events, or continue"],
  [["?"], "this help"],
];

export function HelpDialog({ onClose }: { readonly onClose: () => void }) {
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      {(close) => (
        <>
          <dl class="help">
            {KEYS.map(([keys, effect]) => (
              <div key={effect}>
                <dt>
                  {keys.map((key) => (
                    <kbd key={key}>{key}</kbd>
                  ))}
                </dt>
                <dd>{effect}</dd>
              </div>
            ))}
          </dl>
          <div class="dialog-actions">
            <button type="button" class="button" onClick={close}>
              Close
            </button>
          </div>
        </>
      )}
    </Dialog>
  );
}

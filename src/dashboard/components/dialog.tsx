/** A dialog over the page. Escape and a click beside it close it; the focus returns to where it was. */

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: (close: () => void) => ComponentChildren;
}

export function Dialog({ title, onClose, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useLayoutEffect(() => ref.current?.showModal(), []);
  const close = (): void => ref.current?.close();
  const closeBeside = (event: MouseEvent): void => {
    if (event.target === ref.current) close();
  };
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the keyboard has Escape for it
    <dialog ref={ref} class="dialog" aria-labelledby={titleId} onClose={onClose} onClick={closeBeside}>
      <div class="dialog-body">
        <h2 id={titleId}>{title}</h2>
        {children(close)}
      </div>
    </dialog>
  );
}

/** Keys, labels and other texts of users: isolated from the text around them, with visible control characters. */

import { makeVisible, splitTail, splitVisible } from "../model/visible-text.ts";

interface TextProps {
  readonly text: string;
  /** Keys, tags and tokens. */
  readonly isCode?: boolean;
}

function Parts({ text }: { readonly text: string }) {
  return (
    <>
      {splitVisible(text).map(({ text: part, isControl }, index) =>
        isControl ? (
          <span key={index} class="control">
            {part}
          </span>
        ) : (
          part
        ),
      )}
    </>
  );
}

/** On one line: the middle is cut if there is no room. */
export function ShortText({ text, isCode = false }: TextProps) {
  const { head, tail } = splitTail(text);
  return (
    <bdi class={isCode ? "short code" : "short"} dir="auto" title={makeVisible(text)}>
      <span class="short-head">
        <Parts text={head} />
      </span>
      {tail !== "" && (
        <span class="short-tail">
          <Parts text={tail} />
        </span>
      )}
    </bdi>
  );
}

/** The label of a claim, on one line. */
export function Label({ text }: { readonly text: string }) {
  return text === "" ? <span class="muted">without a label</span> : <ShortText text={text} />;
}

/** All of it, on as many lines as it needs. */
export function FullText({ text, isCode = false }: TextProps) {
  return (
    <bdi class={isCode ? "full code" : "full"} dir="auto">
      <Parts text={text} />
    </bdi>
  );
}

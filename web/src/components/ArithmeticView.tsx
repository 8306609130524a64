/**
 * How one cell came about: the products that add up to it, largest first, with bars that show their sign and
 * size, and their sum; or the few lines of the formula with the numbers put in.
 */
import { useEffect, useState } from "preact/hooks";
import { arithmetic, type Arithmetic, type Cell, type Term } from "../arithmetic";
import { number, signed, visible } from "../format";
import { manifest, source } from "../state";
import type { TraceNode } from "../types";

const SHOWN = 8;

export function ArithmeticView({ node, cell }: { node: TraceNode; cell: Cell }) {
  const trace = manifest.value;
  const key = `${trace?.id}/${node.id}/${cell.head},${cell.row},${cell.col},${cell.position}`;
  const [state, setState] = useState<{ key: string; value: Arithmetic | null; error: string }>();
  useEffect(() => {
    if (!trace) return;
    let alive = true;
    arithmetic(trace, node, cell, source).then(
      (value) => alive && setState({ key, value, error: "" }),
      (error: Error) => alive && setState({ key, value: null, error: error.message }),
    );
    return () => {
      alive = false;
    };
  }, [key]);
  const now = state?.key === key ? state : null;
  return (
    <div class="arithmetic" data-role="arithmetic" data-cell={`${cell.row},${cell.col}`} aria-live="polite">
      {now?.error && <p class="note">{now.error}</p>}
      {now?.value && <Worked worked={now.value} />}
    </div>
  );
}

function Worked({ worked }: { worked: Arithmetic }) {
  return (
    <>
      {worked.lines.map((line) => <p key={line} class="arithmetic-line">{line}</p>)}
      {worked.terms.length > 0 && <Terms worked={worked} />}
    </>
  );
}

function Terms({ worked }: { worked: Arithmetic }) {
  const [all, setAll] = useState(false);
  const { terms, extra, heads, mark } = worked;
  const order = terms.map((term, i) => ({ term, i })).sort((x, y) => Math.abs(y.term.value) - Math.abs(x.term.value));
  const top = order.filter(({ i }, rank) => rank < SHOWN || i === mark).sort((x, y) => x.i - y.i);
  const shown = all || terms.length <= SHOWN + 2 ? terms.map((term, i) => ({ term, i })) : top;
  const rest = terms.length - shown.length;
  const restSum = terms.reduce((sum, term) => sum + term.value, 0) - shown.reduce((sum, { term }) => sum + term.value, 0);
  const signs = terms.some((term) => term.value < 0);
  const limit = Math.max(...terms.map((term) => Math.abs(term.value)), Math.abs(restSum));
  return (
    <>
      <div class="arithmetic-scroll">
        <table>
          <thead><tr>{heads.map((head, i) => <th key={i} scope="col" class={i === 0 ? "label" : ""}>{head}</th>)}<td /></tr></thead>
          <tbody>
            {shown.map(({ term, i }) => <TermRow key={i} term={term} limit={limit} signs={signs} mark={i === mark} />)}
            {rest > 0 && <TermRow term={{ label: `the other ${rest} together`, value: restSum }} limit={limit} signs={signs} />}
            {extra && <TermRow term={extra} limit={limit} signs={signs} />}
          </tbody>
          <tfoot>
            <tr><th scope="row" colSpan={3} class="label">{heads[3] === "share" && heads[1] === "score" ? "all shares" : "sum"}</th>
              <td class="sum">{number(terms.reduce((sum, term) => sum + term.value, extra?.value ?? 0), 4)}</td><td /></tr>
          </tfoot>
        </table>
      </div>
      {terms.length > SHOWN + 2 && (
        <button type="button" class="quiet" onClick={() => setAll(!all)}>{all ? `Only the ${SHOWN} largest` : `All ${terms.length} in order`}</button>
      )}
    </>
  );
}

/** With `signs` the bar grows to either side of the middle, else from the left. */
function TermRow({ term, limit, signs, mark }: { term: Term; limit: number; signs: boolean; mark?: boolean }) {
  const width = `${limit > 0 ? (Math.abs(term.value) / limit) * (signs ? 50 : 100) : 0}%`;
  const left = signs ? "50%" : "0";
  return (
    <tr class={mark ? "term-mark" : undefined}>
      <th scope="row" class="label"><bdi>{visible(term.label)}</bdi></th>
      <td>{term.a === undefined ? "" : number(term.a, 4)}</td>
      <td>{term.b === undefined ? "" : number(term.b, 4)}</td>
      <td>{signs ? signed(term.value, 4) : number(term.value, 4)}</td>
      <td class={signs ? "term-bar term-signed" : "term-bar"} aria-hidden="true">
        <span class={term.value < 0 ? "minus" : "plus"} style={term.value < 0 ? { right: "50%", width } : { left, width }} />
      </td>
    </tr>
  );
}

"use strict";
// The table of settings: its filters, its order, and both of them in the fragment of the address.
(() => {
  const PORTION = 200;
  const byId = (id) => document.getElementById(id);
  const { names, head, levels, rows: found } = JSON.parse(byId("data").textContent);

  // Of a row: the cells as text, and by what each column is sorted.
  const rows = found.map(([rank, means, shownMeans, count, runs, ...at]) => {
    const texts = at.map((number, column) => levels[column][number]);
    const cells = [rank ?? "—", ...texts, ...shownMeans, runs];
    return { at, cells, keys: [rank, ...at, ...means, count], text: cells.join("\n").toLowerCase() };
  });

  const make = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const labelled = (name, control) => {
    const label = make("label", name);
    label.append(control);
    byId("filters").append(label);
    return control;
  };
  const selects = names.map((name, column) => {
    const select = labelled(name, document.createElement("select"));
    select.append(new Option("all", ""), ...levels[column].map((level, n) => new Option(level, n)));
    return select;
  });
  const search = labelled("search", Object.assign(document.createElement("input"), { type: "search" }));
  byId("filters").hidden = false;

  let order = { column: 0, descending: false };
  let shown = PORTION;

  const compare = (a, b) => {
    const [x, y] = [a.keys[order.column], b.keys[order.column]];
    if (x === null || y === null) return (x === null) - (y === null); // without a score: last
    return order.descending ? y - x : x - y;
  };

  const draw = () => {
    const words = search.value.toLowerCase().split(/\s+/);
    const wanted = selects.map((select) => select.value);
    const left = rows
      .filter((row) => row.at.every((level, n) => wanted[n] === "" || level === Number(wanted[n])))
      .filter((row) => words.every((word) => row.text.includes(word)))
      .sort(compare);
    byId("settings").tBodies[0].replaceChildren(
      ...left.slice(0, shown).map((row) => {
        const line = document.createElement("tr");
        line.append(...row.cells.map((cell) => make("td", cell)));
        return line;
      }),
    );
    byId("count").textContent = `${left.length} of ${rows.length} settings`;
    byId("more").hidden = left.length <= shown;
    heads.forEach((cell, n) =>
      cell.setAttribute("aria-sort", n !== order.column ? "none" : order.descending ? "descending" : "ascending"));
  };

  const write = () => {
    const said = new URLSearchParams();
    selects.forEach((select, n) => select.value !== "" && said.set(names[n], levels[n][select.value]));
    if (search.value) said.set("search", search.value);
    if (order.column || order.descending) said.set("sort", (order.descending ? "-" : "") + head[order.column]);
    history.replaceState(null, "", `#${said}`);
  };

  const read = () => {
    const said = new URLSearchParams(location.hash.slice(1));
    selects.forEach((select, n) => {
      const level = levels[n].indexOf(said.get(names[n]));
      select.value = level < 0 ? "" : level;
    });
    search.value = said.get("search") ?? "";
    const sort = said.get("sort") ?? "";
    const descending = sort.startsWith("-");
    order = { column: Math.max(0, head.indexOf(descending ? sort.slice(1) : sort)), descending };
    shown = PORTION;
    draw();
  };

  const changed = () => {
    shown = PORTION;
    write();
    draw();
  };

  const heads = [...byId("settings").tHead.rows[0].cells];
  heads.forEach((cell, column) => {
    const button = make("button", cell.textContent);
    button.type = "button";
    button.addEventListener("click", () => {
      order = { column, descending: column === order.column && !order.descending };
      changed();
    });
    cell.replaceChildren(button);
  });
  selects.forEach((select) => select.addEventListener("change", changed));
  search.addEventListener("input", changed);
  byId("more").addEventListener("click", () => {
    shown += PORTION;
    draw();
  });
  addEventListener("hashchange", read);
  read();
})();

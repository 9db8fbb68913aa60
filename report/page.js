(function () {
  "use strict";
  var root = document.documentElement;
  function remember(value) {
    try {
      if (value === undefined) return localStorage.getItem("blis-train-theme");
      localStorage.setItem("blis-train-theme", value);
    } catch (e) { /* a file opened from disk may have no storage */ }
    return null;
  }
  var asked = remember();
  if (asked === "dark" || asked === "light") root.setAttribute("data-theme", asked);
  document.getElementById("theme").addEventListener("click", function () {
    var dark = root.getAttribute("data-theme");
    dark = dark ? dark === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    var next = dark ? "light" : "dark";
    root.setAttribute("data-theme", next);
    remember(next);
  });
  function value(row, i) {
    var c = row.cells[i];
    var v = c.getAttribute("data-v");
    if (v !== null) return Number(v);
    var text = c.textContent.trim();
    return text === "\u2013" ? "" : text;
  }
  function compare(a, b) {
    if (a === "" || b === "") return a === b ? 0 : a === "" ? 1 : -1;
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }
  function sort(table, i, th) {
    var up = th.getAttribute("aria-sort") !== "ascending";
    Array.prototype.forEach.call(th.parentNode.cells, function (h) { h.removeAttribute("aria-sort"); });
    th.setAttribute("aria-sort", up ? "ascending" : "descending");
    var body = table.tBodies[0];
    var rows = Array.prototype.map.call(body.rows, function (r) { return [value(r, i), r]; });
    rows.sort(function (a, b) {
      if (a[0] === "" || b[0] === "") return compare(a[0], b[0]);
      return up ? compare(a[0], b[0]) : compare(b[0], a[0]);
    });
    rows.forEach(function (r) { body.appendChild(r[1]); });
  }
  Array.prototype.forEach.call(document.querySelectorAll("table"), function (table) {
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (th, i) {
      th.firstChild.addEventListener("click", function () { sort(table, i, th); });
    });
  });
  function reveal() {
    var id = location.hash.slice(1);
    var at = id && document.getElementById(id);
    for (var n = at; n; n = n.parentNode) if (n.tagName === "DETAILS") n.open = true;
  }
  addEventListener("hashchange", reveal);
  reveal();
})();

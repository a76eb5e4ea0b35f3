"use strict";
// How old the page of an unfinished run is.
(() => {
  const written = document.getElementById("written");
  if (!written) return;
  function tell() {
    const seconds = Math.max(0, Math.round((Date.now() - Date.parse(written.dateTime)) / 1000));
    const [count, unit] = seconds < 120 ? [seconds, "s"] : seconds < 7200 ? [Math.round(seconds / 60), "min"] : [Math.round(seconds / 3600), "h"];
    written.textContent = `${new Date(written.dateTime).toLocaleTimeString()}, ${count} ${unit} ago`;
  }
  tell();
  setInterval(tell, 1000);
})();

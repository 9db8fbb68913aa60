package deploy

var serveFlags = []serveFlag{{name: "seed"}}

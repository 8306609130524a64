import{a as s,f as r}from"./changes.js";import"./screens.js";import"./shared.js";export{s as compare,r as why};

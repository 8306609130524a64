import{A as s,m as a,w as e}from"./screens.js";import"./shared.js";export{a as attention,e as decode,s as step};

import{m as s,r as a,s as e}from"./screens.js";import"./shared.js";export{s as attention,a as decode,e as step};
